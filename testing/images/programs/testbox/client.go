package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

const timeout = 10 * time.Second

func get(url string) error {
	response, err := (&http.Client{Timeout: timeout}).Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return errors.New(response.Status)
	}
	return nil
}

func api(path string) error {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}

	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequest(http.MethodGet, "https://"+host+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// Any status is an answer: a test may want to see a 403.
	fmt.Println(response.Status)
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

func memcachedSet(address, key, value string) error {
	reply, _, err := memcached(address, fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", key, len(value), value))
	if err == nil && reply != "STORED" {
		err = errors.New(reply)
	}
	return err
}

func memcachedGet(address, key string) error {
	reply, rest, err := memcached(address, fmt.Sprintf("get %s\r\n", key))
	if err != nil {
		return err
	}
	var name string
	var flags, size int
	if _, err := fmt.Sscanf(reply, "VALUE %s %d %d", &name, &flags, &size); err != nil {
		return fmt.Errorf("no value: the server said %q", reply)
	}
	value := make([]byte, size)
	if _, err := io.ReadFull(rest, value); err != nil {
		return err
	}
	fmt.Println(string(value))
	return nil
}

// memcached sends a command in the text protocol and returns the first line of the reply, and the rest.
func memcached(address, command string) (string, io.Reader, error) {
	connection, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return "", nil, err
	}
	// The process ends soon and closes the connection with it.
	if err := connection.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", nil, err
	}
	if _, err := io.WriteString(connection, command); err != nil {
		return "", nil, err
	}
	reader := bufio.NewReader(connection)
	line, err := reader.ReadString('\n')
	return strings.TrimSpace(line), reader, err
}

func resolve(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	for _, address := range addresses {
		fmt.Println(address)
	}
	return err
}

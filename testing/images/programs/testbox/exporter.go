package main

import (
	"bufio"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// exporter answers /metrics with what a memcached says of itself. It takes those flags of Prometheus' memcached_exporter that
// the operator gives it, and no others, and has some of its metrics.
func exporter(args []string) error {
	flags := flag.NewFlagSet("exporter", flag.ContinueOnError)
	memcached := flags.String("memcached.address", "localhost:11211", "the node")
	listen := flags.String("web.listen-address", ":9150", "where /metrics is")
	enable := flags.Bool("memcached.tls.enable", false, "speak TLS with the node")
	insecure := flags.Bool("memcached.tls.insecure-skip-verify", false, "whatever its certificate says")
	certificate := flags.String("memcached.tls.cert-file", "", "shown to the node")
	key := flags.String("memcached.tls.key-file", "", "its key")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dial := func() (net.Conn, error) { return net.DialTimeout("tcp", *memcached, timeout) }
	if *enable {
		config := &tls.Config{InsecureSkipVerify: *insecure}
		if *certificate != "" {
			pair, err := tls.LoadX509KeyPair(*certificate, *key)
			if err != nil {
				return err
			}
			config.Certificates = []tls.Certificate{pair}
		}
		dial = func() (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, "tcp", *memcached, config)
		}
	}
	metrics := func(w http.ResponseWriter, _ *http.Request) {
		stats, err := statistics(dial)
		if err != nil {
			fmt.Println(err)
			fmt.Fprintln(w, "memcached_up 0")
			return
		}
		fmt.Fprintln(w, "memcached_up 1")
		fmt.Fprintln(w, "memcached_current_items", stats["curr_items"])
		fmt.Fprintln(w, "memcached_limit_bytes", stats["limit_maxbytes"])
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", metrics)
	return listenUntilTold(&http.Server{Addr: *listen, Handler: mux, ReadHeaderTimeout: 10 * time.Second})
}

func statistics(dial func() (net.Conn, error)) (map[string]string, error) {
	connection, err := dial()
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprint(connection, "stats\r\n"); err != nil {
		return nil, err
	}
	stats := map[string]string{}
	lines := bufio.NewScanner(connection)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 1 && words[0] == "END" {
			return stats, nil
		}
		if len(words) != 3 || words[0] != "STAT" {
			return nil, fmt.Errorf("the node said %q", lines.Text())
		}
		stats[words[1]] = words[2]
	}
	return nil, fmt.Errorf("the node stopped in the middle: %w", lines.Err())
}

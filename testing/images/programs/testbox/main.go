// testbox is what tests run inside pods: a small web server, and clients for what they look at from there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const usage = `usage: testbox COMMAND

  serve [--port N]              answer every HTTP request with a greeting and the host name (default port 8080)
  get URL                       print the body; exit 1 unless the status is 2xx
  api PATH                      GET PATH from the Kubernetes API with the pod's service account; status and body
  memcached ADDR set KEY VALUE  store a value
  memcached ADDR get KEY        print a value; exit 1 if there is none
  exporter [FLAGS]              be a memcached_exporter: metrics of a node, with the real one's flags
  resolve NAME                  print the addresses of a name, one per line
  sleep DURATION                such as 90s or 1h; ends at once, with 0, when told to
  exit CODE                     exit with that code
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "testbox:", err)
		var code exitCode
		if errors.As(err, &code) {
			os.Exit(int(code))
		}
		os.Exit(1)
	}
}

// exitCode is an error that chooses how the process ends.
type exitCode int

func (c exitCode) Error() string { return "exit code " + strconv.Itoa(int(c)) }

var errUsage = errors.New("wrong arguments; run testbox without any to see what there is")

func run(command string, args []string) error {
	switch {
	case command == "serve":
		return serve(args)
	case command == "get" && len(args) == 1:
		return get(args[0])
	case command == "api" && len(args) == 1:
		return api(args[0])
	case command == "memcached" && len(args) == 4 && args[1] == "set":
		return memcachedSet(args[0], args[2], args[3])
	case command == "memcached" && len(args) == 3 && args[1] == "get":
		return memcachedGet(args[0], args[2])
	case command == "exporter":
		return exporter(args)
	case command == "resolve" && len(args) == 1:
		return resolve(args[0])
	case command == "sleep" && len(args) == 1:
		return sleep(args[0])
	case command == "exit" && len(args) == 1:
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		if code == 0 {
			return nil
		}
		return exitCode(code)
	}
	return errUsage
}

func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	port := flags.Int("port", 8080, "TCP port")
	if err := flags.Parse(args); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr: ":" + strconv.Itoa(*port),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, "hello from", host)
			fmt.Println(r.RemoteAddr, r.Method, r.URL)
		}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	return listenUntilTold(server)
}

func listenUntilTold(server *http.Server) error {
	drained := make(chan error, 1)
	go func() {
		<-terminated().Done()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		drained <- server.Shutdown(ctx)
	}()
	fmt.Println("listening on", server.Addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained
}

func sleep(text string) error {
	duration, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	select {
	case <-time.After(duration):
	case <-terminated().Done():
	}
	return nil
}

// terminated is done once the process gets SIGTERM or SIGINT. The first process of a container gets no default action for signals.
func terminated() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	return ctx
}

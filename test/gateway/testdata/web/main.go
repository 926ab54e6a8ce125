// Command web is the HTTP server and client of the gateway's tests, inside and outside
// containers.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: web serve NAME             answer with the name and the request's headers
       web get URL ADDRESS            send a request to the address until the answer is
                                      neither 404 nor 503; print status, Location and body
       web ready                      make the container healthy
       web healthy                    check that it is`

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve":
		serve(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "get":
		get(os.Args[2], os.Args[3])
	case len(os.Args) == 2 && os.Args[1] == "ready":
		exitOn(os.WriteFile(ready, nil, 0o644))
	case len(os.Args) == 2 && os.Args[1] == "healthy":
		_, err := os.Stat(ready)
		exitOn(err)
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
}

// serveOn is how long the server accepts requests after SIGTERM, so that the gateway learns of it.
// net/http drops requests that it has read when Shutdown begins, and no gateway can know
// whether such a request was processed.
const serveOn = time.Second

// serve answers until SIGTERM, serves on for a moment, and then finishes the requests that it has, as
// servers that are replaced without a loss do.
func serve(name string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s := &http.Server{Addr: ":80", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "%s %s %s %s %s\n", name, r.Method, r.URL.Path, r.Header.Get("X-Forwarded-Proto"), body)
	})}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		<-ctx.Done()
		time.Sleep(serveOn)
		end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Shutdown(end)
	}()
	if err := s.ListenAndServe(); err != http.ErrServerClosed {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	<-finished // ListenAndServe returns when Shutdown begins
}

// get waits up to a minute for a router and a server.
func get(url, address string) {
	client := &http.Client{
		// While a container starts, Docker's proxy may keep a connection without an answer.
		Timeout:       15 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address)
			},
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			ForceAttemptHTTP2: true,
		},
	}
	last := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		answer, err := client.Get(url)
		if err != nil {
			last = err.Error()
			continue
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		last = strings.Join(strings.Fields(fmt.Sprintln(answer.StatusCode, answer.Header.Get("Location"),
			string(text))), " ")
		if err == nil && answer.StatusCode != http.StatusNotFound &&
			answer.StatusCode != http.StatusServiceUnavailable {
			fmt.Println(last)
			return
		}
	}
	fmt.Fprintln(os.Stderr, "no answer within a minute; the last one:", last)
	os.Exit(1)
}

// ready is the file whose existence makes a container healthy.
const ready = "/ready"

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

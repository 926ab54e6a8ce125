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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const usage = `usage: web serve NAME             answer with the name and the request's headers
       web get URL ADDRESS            send a request to the address until the answer is
                                      neither 404 nor 503; print status, Location and body
       web load URL HOST COUNT        send COUNT requests, every third with a body, and more
                                      until the input ends; print how many failed`

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve":
		serve(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "get":
		get(os.Args[2], os.Args[3])
	case len(os.Args) == 5 && os.Args[1] == "load":
		count, _ := strconv.Atoi(os.Args[4])
		load(os.Args[2], os.Args[3], count)
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
}

// serve answers until SIGTERM, and then finishes the requests that it has, as servers of
// web applications do.
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

// load sends requests with four clients until the standard input ends, at least count.
func load(url, host string, count int) {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	var mu sync.Mutex
	answers := map[string]int{}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-ended:
					if n*4 >= count {
						return
					}
				default:
				}
				answer := request(url, host, n%3 == 0)
				mu.Lock()
				answers[answer]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for answer, n := range answers {
		fmt.Println(n, answer)
	}
}

// request returns "ok", or why the request failed.
func request(url, host string, post bool) string {
	method, body := http.MethodGet, ""
	if post {
		method, body = http.MethodPost, "0123456789"
	}
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	r.Host = host
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err.Error()
	case answer.StatusCode != http.StatusOK:
		return method + " " + answer.Status
	case post && !strings.HasSuffix(strings.TrimSpace(string(text)), body):
		return "the body is lost"
	}
	return "ok"
}

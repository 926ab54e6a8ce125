// Command program is the server and client of the tests of the Docker driver, inside and outside
// containers. Its server answers a client with the client's address.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const usage = `NETWORK is tcp, udp or http
usage: program serve NETWORK:PORT...   answer until a signal; after:FIFO waits
                                       for a write there first, name:TEXT is
                                       the answer instead of the client's
                                       address, until:FIFO continues after a
                                       signal until a write there
       program ask NETWORK ADDRESS        print the answer
       program load NETWORK ADDRESS [N]   ask again and again, N times or until the
                                       input ends; print the answers and the
                                       failures, and how many of each
       program exists FILE                fail unless it is there`

const (
	// timeout limits a request.
	timeout = 30 * time.Second
	// pause is the time between two attempts.
	pause = 10 * time.Millisecond
)

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("%s", usage))
	}
	switch os.Args[1] {
	case "serve":
		serveAll(os.Args[2:])
	case "ask":
		answer, err := ask(os.Args[2], os.Args[3])
		if err != nil {
			fail(err)
		}
		fmt.Println(answer)
	case "load":
		n := 0
		if len(os.Args) > 4 {
			n, _ = strconv.Atoi(os.Args[4])
		}
		load(os.Args[2], os.Args[3], n)
	case "exists":
		if _, err := os.Stat(os.Args[2]); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "program:", err)
	os.Exit(1)
}

// name is the server's answer; if empty, the answer is the client's address.
var name string

func serveAll(words []string) {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, os.Interrupt)
	var until string
	for _, word := range words {
		kind, value, _ := strings.Cut(word, ":")
		var err error
		switch kind {
		case "name":
			name = value
		case "until":
			until = value
		case "after":
			err = serve(kind, value)
		default:
			err = serve(kind, ":"+value)
		}
		if err != nil {
			fail(err)
		}
	}
	<-end
	if until != "" {
		if _, err := os.ReadFile(until); err != nil {
			fail(err)
		}
	}
}

// load sends n requests, or requests until the input ends if n is 0, each on a new connection. It
// prints each answer and how often it was received.
func load(network, addr string, n int) {
	var ended atomic.Bool
	if n == 0 {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // an error ends it, too
			ended.Store(true)
		}()
	}
	said := map[string]int{}
	for pace := time.NewTicker(pause); !ended.Load(); <-pace.C {
		answer, err := askOnce(network, addr)
		if err != nil {
			answer = "failed: " + time.Now().Format(time.StampMicro) + " " + err.Error()
		}
		said[answer]++
		if n--; n == 0 {
			break
		}
	}
	for answer, n := range said {
		fmt.Println(n, answer)
	}
}

// serve answers on a port in the background.
func serve(network, addr string) error {
	if network == "after" {
		_, err := os.ReadFile(addr)
		return err
	}
	if network == "udp" {
		conn, err := net.ListenPacket("udp", addr)
		if err != nil {
			return err
		}
		go answerDatagrams(conn)
		return nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	if network == "http" {
		go func() { fail(http.Serve(listener, http.HandlerFunc(answerRequest))) }()
	} else {
		go answerConnections(listener)
	}
	return nil
}

func answerRequest(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, host(r.RemoteAddr))
}

func answerDatagrams(conn net.PacketConn) {
	for buf := make([]byte, 64); ; {
		_, from, err := conn.ReadFrom(buf)
		if err != nil {
			fail(err)
		}
		_, _ = conn.WriteTo([]byte(host(from.String())), from)
	}
}

func answerConnections(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			fail(err)
		}
		_, _ = io.WriteString(conn, host(conn.RemoteAddr().String()))
		conn.Close()
	}
}

// host returns the client's address, or the server's name if it is set.
func host(addr string) string {
	if name != "" {
		return name
	}
	h, _, _ := net.SplitHostPort(addr)
	return h
}

// ask returns the answer. It retries while there is no listener or no route.
func ask(network, addr string) (string, error) {
	conn, err := dial(network, addr)
	for end := time.Now().Add(timeout); notYet(err) && time.Now().Before(end); time.Sleep(pause) {
		conn, err = dial(network, addr)
	}
	if err != nil {
		return "", err
	}
	return question(conn, network)
}

// notYet reports whether the error means that the server cannot be reached yet.
func notYet(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENETUNREACH) ||
		errors.Is(err, syscall.EHOSTUNREACH)
}

// askOnce does the same as ask, without retries.
func askOnce(network, addr string) (string, error) {
	conn, err := dial(network, addr)
	if err != nil {
		return "", err
	}
	return question(conn, network)
}

func dial(network, addr string) (net.Conn, error) {
	if network == "http" {
		network = "tcp"
	}
	return net.DialTimeout(network, addr, timeout)
}

func question(conn net.Conn, network string) (string, error) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if network == "http" {
		return request(conn)
	}
	if network == "udp" {
		if _, err := io.WriteString(conn, "?"); err != nil {
			return "", err
		}
		buf := make([]byte, 64)
		n, err := conn.Read(buf)
		return string(buf[:n]), err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// request returns the body of the answer to an HTTP request.
func request(conn net.Conn) (string, error) {
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return string(body), err
}

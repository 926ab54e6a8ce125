package website

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"

	"fairlead/internal/child"
)

// Role is the role of a node's server process.
const Role = "site-server"

// order is the first message to a server.
type order struct {
	At    netip.AddrPort
	Pages int
}

// Server is a running server.
type Server struct{ worker *child.Worker }

// StartServer starts a server of the site with that number of pages, and waits until
// it listens. When ctx ends, the server is killed.
func StartServer(ctx context.Context, at netip.AddrPort, pages int, place child.Place) (*Server, error) {
	w, err := child.Order(ctx, Role, order{at, pages}, place)
	if err != nil {
		return nil, fmt.Errorf("web server %s: %w", at, err)
	}
	return &Server{w}, nil
}

// Kill ends the server as kill -9 does.
func (s *Server) Kill() { s.worker.Close() }

// Requests returns the number of requests that the server has answered since its
// start.
func (s *Server) Requests() (n uint64, err error) {
	if _, err = io.WriteString(s.worker.In, "count\n"); err == nil {
		_, err = fmt.Fscan(s.worker.Out, &n)
	}
	if err != nil {
		return 0, fmt.Errorf("ask the web server for its requests: %w", err)
	}
	return n, nil
}

// Main runs the role of a server until its input ends.
func Main() int {
	// The server costs least on one thread: the runtime does not search for other work
	// on idle CPUs.
	runtime.GOMAXPROCS(1)
	return child.ExitCode("site", serve(os.Stdin, os.Stdout))
}

func serve(input io.Reader, out io.Writer) error {
	in := bufio.NewReader(input)
	var do order
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &do)
	}
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	h := newHandler(New(do.Pages))
	l, err := net.Listen("tcp", do.At.String())
	if err != nil {
		return err
	}
	go h.accept(l)
	if _, err := io.WriteString(out, child.Ready); err != nil {
		return err
	}
	for {
		if _, err := in.ReadString('\n'); errors.Is(err, io.EOF) {
			return nil
		}
		if _, err := fmt.Fprintln(out, h.requests.Load()); err != nil {
			return err
		}
	}
}

// handler answers requests with prepared responses, so that a request costs little
// besides its two system calls: what is measured is the gateway before it.
type handler struct {
	responses map[string][]byte
	requests  atomic.Uint64
}

func newHandler(s *Site) *handler {
	h := &handler{responses: map[string][]byte{}}
	for path, body := range s.bodies {
		h.responses[path] = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
			contentType(path), len(body), body)
	}
	return h
}

func contentType(path string) string {
	for _, known := range []struct{ end, is string }{{".css", "text/css"}, {".js", "text/javascript"},
		{".png", "image/png"}} {
		if strings.HasSuffix(path, known.end) {
			return known.is
		}
	}
	return "text/html"
}

func (h *handler) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "fairlead site:", err)
			return
		}
		go h.serve(conn)
	}
}

// maxHead is the greatest size of a request's head. Only the laboratory's gateways
// connect, and their requests have no bodies.
const maxHead = 16 << 10

func (h *handler) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, maxHead)
	for {
		path, err := readRequest(in)
		if err != nil {
			return
		}
		answer, known := h.responses[path]
		if !known {
			answer = []byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
		}
		h.requests.Add(1)
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// readRequest reads the head of a GET request and returns its path.
func readRequest(in *bufio.Reader) (path string, err error) {
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return path, nil
		}
		if first {
			fields := bytes.Fields(line)
			if len(fields) != 3 || string(fields[0]) != "GET" {
				return "", fmt.Errorf("not a GET request: %q", line)
			}
			path = string(fields[1])
		}
	}
}

package differential_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/place"
)

// batch is a configuration of a gateway, with requests to it.
type batch struct {
	Name string
	// Flags are those of the static configuration, besides flags that all batches have.
	Flags []string
	// Dynamic is the configuration for the file provider.
	Dynamic map[string]any
	// Containers are those of a fake engine, if there are any.
	Containers []container `json:",omitempty"`
	Requests   []request
}

// request is a request of HTTP/1.1. A client sends the lines of the header as they are.
type request struct {
	Name string
	// Entry is the port of the entry point.
	Entry  string
	Method string
	Target string
	// Host may be empty: then the request has no Host field.
	Host   string
	Header []string
	Body   string
	// Servers is how many servers must have received the request: copies come late.
	Servers int
}

// response is what a gateway did with a request.
type response struct {
	Status   int
	Header   map[string][]string
	Body     string
	Received []received `json:",omitempty"`
	// Failed says that the connection ended without a response.
	Failed bool `json:",omitempty"`
}

// outcome is what a gateway did with a batch.
type outcome struct {
	Batch     string
	Responses map[string]response
	// Raw is the answer of /api/rawdata.
	Raw map[string]any
}

// entries are the flags that all batches have.
var entries = []string{"--entrypoints.web.address=127.0.0.1:8000", "--entrypoints.other.address=127.0.0.1:8001",
	"--entrypoints.traefik.address=127.0.0.1:8080", "--api.insecure", "--entrypoints.tcp.address=127.0.0.1:8002",
	"--entrypoints.udp.address=127.0.0.1:8003/udp", "--entrypoints.web.asdefault",
	"--providers.providersthrottleduration=10ms", "--global.checknewversion=false",
	"--global.sendanonymoususage=false"}

// play runs the batch in a network namespace of its own with the gateway that the command starts.
func play(t testing.TB, command []string, b batch) outcome {
	t.Helper()
	ns := kerneltest.Netns(t)
	r := &recorder{seen: map[string][]received{}}
	for port := 9001; port <= 9004; port++ {
		r.serve(t, ns.Do, fmt.Sprintf("s%d", port-9000), fmt.Sprintf("127.0.0.1:%d", port), false)
	}
	r.serve(t, ns.Do, "auth", "127.0.0.1:9100", false)
	r.serve(t, ns.Do, "tls", "127.0.0.1:9443", true)
	for i := range b.Containers {
		r.serve(t, ns.Do, b.Containers[i].Name, fmt.Sprintf("127.0.1.%d:80", 1+i%250), false)
	}
	w := &world{TB: t, ns: ns, recorder: r}
	w.start(command, b)
	out := outcome{Batch: b.Name, Responses: map[string]response{}, Raw: w.ready(b)}
	for _, q := range b.Requests {
		out.Responses[q.Name] = w.send(q)
	}
	for _, q := range b.Requests {
		is := out.Responses[q.Name]
		is.Received = r.of(q.Name)
		out.Responses[q.Name] = is
	}
	return out
}

// world is a network namespace with servers and a gateway.
type world struct {
	testing.TB
	ns       *netns.Namespace
	recorder *recorder
	log      string
}

// start starts the gateway; it ends with the test.
func (w *world) start(command []string, b batch) {
	w.Helper()
	dir := w.TempDir()
	dynamic, err := json.Marshal(b.Dynamic)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "dynamic.yml"), dynamic, 0o644)
	}
	if err != nil {
		w.Fatal(err)
	}
	args := append(append(append([]string(nil), command[1:]...), entries...), b.Flags...)
	args = append(args, "--providers.file.filename="+filepath.Join(dir, "dynamic.yml"),
		"--providers.file.watch=false")
	if len(b.Containers) > 0 {
		args = append(args, "--providers.docker.endpoint=unix://"+startEngine(w.TB, b.Containers))
	}
	cmd := exec.Command(command[0], args...)
	w.log = filepath.Join(dir, "log")
	log, err := os.Create(w.log)
	if err != nil {
		w.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	ctx, cancel := context.WithCancel(context.Background())
	p, err := child.Start(ctx, cmd, child.Place{Netns: w.ns.File()})
	if err != nil {
		cancel()
		w.Fatal(err)
	}
	w.Cleanup(func() {
		cancel()
		_ = p.Wait() // it was killed
	})
}

// ready waits until the gateway has the configuration, and returns the answer of /api/rawdata.
func (w *world) ready(b batch) map[string]any {
	w.Helper()
	var raw map[string]any
	for end := time.Now().Add(place.Timeout); time.Now().Before(end); {
		got := w.send(request{Entry: "8080", Method: "GET", Target: "/api/rawdata", Host: "api"})
		raw = nil
		routers := map[string]any{}
		if got.Status == http.StatusOK && json.Unmarshal([]byte(got.Body), &raw) == nil {
			routers, _ = raw["routers"].(map[string]any)
		}
		_, file := routers["sentinel@file"]
		_, docker := routers["sentinel@docker"]
		if file && (docker || len(b.Containers) == 0) {
			return raw
		}
		time.Sleep(20 * time.Millisecond)
	}
	text, _ := os.ReadFile(w.log)
	w.Fatalf("%s: the gateway has not read its configuration:\n%.4000s", b.Name, text)
	return nil
}

// send sends the request over a connection of its own.
func (w *world) send(q request) response {
	conn, err := place.Dial(w.ns.Do, "tcp", "127.0.0.1:"+q.Entry, place.Timeout)
	if err != nil {
		return response{Failed: true}
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(place.Timeout)) // reads fail then
	go io.WriteString(conn, q.text())
	is := read(conn, q.Method)
	w.await(q) // a copy of the request may end with the connection
	return is
}

func read(conn net.Conn, method string) response {
	in := bufio.NewReader(conn)
	for {
		answer, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return response{Failed: true}
		}
		if answer.StatusCode < 200 && answer.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Header.Del("Date")
		return response{Status: answer.StatusCode, Header: answer.Header, Body: string(body), Failed: err != nil}
	}
}

// text returns the request as it is sent.
func (q request) text() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", q.Method, q.Target)
	if q.Host != "" {
		fmt.Fprintf(&b, "Host: %s\r\n", q.Host)
	}
	if q.Name != "" {
		fmt.Fprintf(&b, "%s: %s\r\n", caseHeader, q.Name)
	}
	for _, h := range q.Header {
		b.WriteString(h + "\r\n")
	}
	if q.Body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(q.Body))
	}
	b.WriteString("\r\n" + q.Body)
	return b.String()
}

// await waits until as many servers have received the request as must, if the first has.
func (w *world) await(q request) {
	servers := func() (n int) {
		for _, at := range w.recorder.of(q.Name) {
			if at.At != "auth" {
				n++
			}
		}
		return n
	}
	if servers() == 0 {
		return
	}
	for end := time.Now().Add(place.Timeout); servers() < q.Servers && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

// hasLine reports whether one of the lines begins with the text.
func hasLine(lines []string, begin string) bool {
	for _, line := range lines {
		if strings.HasPrefix(line, begin) {
			return true
		}
	}
	return false
}

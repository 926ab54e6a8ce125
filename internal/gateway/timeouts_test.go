package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"fairlead/internal/gateway"
	model "fairlead/internal/model/gateway"
	"fairlead/test/place"
)

// echo returns each part of the request's body at once.
func echo(rw http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(rw)
	_ = control.EnableFullDuplex() // HTTP/2 has nothing else
	for buf := make([]byte, 100); control.Flush() == nil; {
		n, err := r.Body.Read(buf)
		if _, werr := rw.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// upload is a request whose body is sent in parts.
type upload struct {
	in  *io.PipeWriter
	out io.ReadCloser
}

// upload begins an upload at the address, and receives its first part.
func (w *world) upload(address string, protocols *http.Protocols) (*upload, error) {
	transport := &http.Transport{Protocols: protocols}
	w.t.Cleanup(transport.CloseIdleConnections)
	body, in := io.Pipe()
	answer, err := (&http.Client{Transport: transport}).Post("http://"+address+"/", "", body)
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(func() { in.Close(); answer.Body.Close() })
	u := &upload{in, answer.Body}
	return u, u.echo("first")
}

// echo sends a part and receives it.
func (u *upload) echo(text string) error {
	if _, err := io.WriteString(u.in, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(u.out, got); err != nil || string(got) != text {
		return fmt.Errorf("got %q, %w", got, err)
	}
	return nil
}

// TestTimeoutsOfZero checks that timeouts of 0 are no limits, for uploads over HTTP/1.1 and HTTP/2. The uploads at
// an entry point with the default timeouts show that enough time has passed: they end, one after the other. The
// head of a request has a limit always.
func TestTimeoutsOfZero(t *testing.T) {
	t.Parallel()
	none := model.Timeouts{Read: new(time.Duration), Write: new(time.Duration), Idle: new(time.Duration)}
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0"},
		{Name: "patient", Address: "127.0.0.1:0", Timeouts: none}}},
		func(g *gateway.Gateway) {
			g.SetDefaults(model.TimeLimits{Read: 2 * time.Second, Write: 2 * time.Second, Idle: 2 * time.Second})
		})
	w.apply(map[string]*model.Router{"r@file": {Rule: "PathPrefix(`/`)", Service: "s@file",
		EntryPoints: []string{"web", "patient"}}}, map[string]*model.Service{"s@file": server(t, echo)})
	patient := w.sockets["patient"].TCP.Addr().String()
	slow, err := net.Dial("tcp", patient)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	_, _ = io.WriteString(slow, "GET / HTTP/1.1\r\n") // the read fails
	one := new(http.Protocols)
	one.SetHTTP1(true)
	kinds := map[string]*http.Protocols{"HTTP/1.1": one, "HTTP/2": twoOnly()}
	silent := map[string]*upload{}
	for name, protocols := range kinds {
		u, err := w.upload(patient, protocols)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		silent[name] = u
	}
	for name, protocols := range kinds {
		var limited *upload
		eventually(t, name, func() (err error) { // a client without CPU time is silent, too
			limited, err = w.upload(w.address, protocols)
			return err
		})
		if _, err := limited.out.Read(make([]byte, 1)); err == nil {
			t.Fatalf("%s: the server sent more than it got", name)
		}
	}
	for name, u := range silent {
		if err := u.echo("second"); err != nil {
			t.Errorf("%s without a limit: %v", name, err)
		}
	}
	_ = slow.SetReadDeadline(time.Now().Add(place.Timeout))
	if _, err := io.ReadAll(slow); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a client that sends its head slowly keeps its connection")
	}
}

package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	model "fairlead/internal/model/gateway"
	"fairlead/test/place"
	helper "fairlead/test/process"

	"golang.org/x/sys/unix"
)

// controllerRole is a controlling process that a test kills.
const controllerRole = "controller"

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{Role: mainOrHostile, controllerRole: helper.Main(control)})
	os.Exit(m.Run())
}

// settings returns static settings with one entry point.
func settings(address string) model.Static {
	return model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: address}}, Default: []string{"web"}}
}

// configOf returns a configuration that sends all requests to the server.
func configOf(url string) *model.Config {
	rule := "PathPrefix(`/`)"
	return &model.Config{HTTP: model.HTTP{
		Routers: map[string]*model.Router{"all@test": {Rule: rule, Service: "s@test"},
			"secure@test": {Rule: rule, Service: "s@test", TLS: &model.RouterTLS{}}},
		Services: map[string]*model.Service{"s@test": {LoadBalancer: &model.LoadBalancer{
			Servers: []model.Server{{URL: url}}}}},
	}}
}

// backend starts a server that answers with the text and the body of the request.
func backend(t *testing.T, text string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", text, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func optionsAt(directory string) Options {
	return Options{Directory: directory, Stderr: os.Stderr, Log: slog.New(slog.DiscardHandler)}
}

// begin starts a serving process, which ends with the test.
func begin(t *testing.T, opt Options, static model.Static, config *model.Config) *Controller {
	t.Helper()
	c, statuses, err := Start(t.Context(), opt, static, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Stop(ctx)
	})
	if len(statuses) > 0 {
		t.Fatalf("statuses: %+v", statuses)
	}
	return c
}

// get sends a request on a new connection.
func get(url string) (string, error) {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	answer, err := (&http.Client{Transport: tr, Timeout: place.Timeout}).Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return fmt.Sprintf("%d %s", answer.StatusCode, strings.TrimSpace(string(body))), err
}

func wantGet(t *testing.T, url, want string) {
	t.Helper()
	if got, err := get(url); err != nil || got != want {
		t.Fatalf("GET %s: %q %v, want %q", url, got, err, want)
	}
}

// TestApply changes the configuration of a running process.
func TestApply(t *testing.T) {
	one, two := backend(t, "one"), backend(t, "two")
	first := configOf(one)
	c := begin(t, optionsAt(""), settings("127.0.0.1:0"), first)
	url := "http://" + c.Address("web") + "/"
	wantGet(t, url, "200 one")
	next := configOf(two)
	next.HTTP.Routers = maps.Clone(first.HTTP.Routers) // the same objects are not sent again
	next.HTTP.Routers["bad@test"] = &model.Router{Rule: "Hots(`a`)", Service: "s@test"}
	next.TLS.Certificates = []model.Certificate{{CertFile: "/nonexistent.pem", KeyFile: "/nonexistent.key"}}
	statuses, err := c.Apply(next, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantGet(t, url, "200 two")
	var names []string
	for _, s := range statuses {
		names = append(names, s.Kind+" "+s.Name)
	}
	if got := strings.Join(names, ", "); got != "certificate /nonexistent.pem, router bad@test" {
		t.Errorf("objects with a problem: %s", got)
	}
	if _, err := c.Apply(&model.Config{}, nil); err != nil {
		t.Fatal(err)
	}
	wantGet(t, url, "404 404 page not found")
	if a, err := c.Explain(t.Context(), "", "GET", url); err != nil || a.Router != "" {
		t.Errorf("explain: %+v %v", a, err)
	}
}

// TestKilledServingProcess kills the process, also while clients wait to be accepted.
func TestKilledServingProcess(t *testing.T) {
	c := begin(t, optionsAt(""), settings("127.0.0.1:0"), configOf(backend(t, "one")))
	url := "http://" + c.Address("web") + "/"
	for range 2 {
		pid, _ := c.Processes()
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// It must not accept the client's connection before it dies.
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		answer := make(chan error, 1)
		go func() {
			got, err := get(url) // waits in the queue of the listening socket
			if err == nil && got != "200 one" {
				err = errors.New(got)
			}
			answer <- err
		}()
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := <-answer; err != nil {
			t.Error(err)
		}
		if now, _ := c.Processes(); now == pid {
			t.Errorf("the process is still %d", pid)
		}
	}
}

// TestApplyWhileEnding changes the configuration while the gateway accepts its last requests.
func TestApplyWhileEnding(t *testing.T) {
	static := settings("127.0.0.1:0")
	static.EntryPoints[0].Timeouts.AcceptGrace = time.Hour
	static.Ping = &model.Ping{EntryPoint: "web"}
	c := begin(t, optionsAt(""), static, configOf(backend(t, "one")))
	url := "http://" + c.Address("web")
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan bool)
	go func() { c.Stop(ctx); close(stopped) }()
	for got := ""; got != "503 "; { // nothing announces that the process ends
		var err error
		if got, err = get(url + "/ping"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Apply(configOf(backend(t, "two")), nil); err != nil {
		t.Fatal(err)
	}
	wantGet(t, url+"/", "200 two")
	cancel()
	<-stopped
	if _, err := get(url + "/"); err == nil {
		t.Error("the gateway answers after its end")
	}
	if _, err := c.Apply(&model.Config{}, nil); err == nil {
		t.Error("a process that has ended takes a configuration")
	}
}

// TestReopen renames the file of the access log, as logrotate does.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	static := settings("127.0.0.1:0")
	static.AccessLog = &model.AccessLog{FilePath: filepath.Join(dir, "access.log")}
	c := begin(t, optionsAt(""), static, configOf(backend(t, "one")))
	url := "http://" + c.Address("web")
	wantGet(t, url+"/before", "200 one")
	if err := os.Rename(static.AccessLog.FilePath, filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	if err := c.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantGet(t, url+"/after", "200 one")
	for name, want := range map[string]string{"old": "/before", "access.log": "/after"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), want) {
			t.Errorf("%s: %q %v", name, text, err)
		}
	}
}

// order is of a controlling process that is killed.
type order struct {
	Directory, Address, Server, Report string
}

// control starts or adopts a serving process, and writes its process id to a file.
func control(do order) error {
	c, _, err := Start(context.Background(), optionsAt(do.Directory), settings(do.Address), configOf(do.Server), nil)
	if err != nil {
		return err
	}
	pid, _ := c.Processes()
	text := fmt.Sprintf("%d %s", pid, c.Address("web"))
	if err := os.WriteFile(do.Report, []byte(text), 0o600); err != nil {
		return err
	}
	helper.Ready()
	_, _ = io.Copy(io.Discard, os.Stdin)
	c.Part()
	return nil
}

// controller starts a controlling process, and returns the serving process's id and address.
func controller(t *testing.T, do order) (p *helper.Process, pid int, address string) {
	t.Helper()
	do.Report = filepath.Join(t.TempDir(), "pid")
	p = helper.Start(t, controllerRole, do, child.Place{})
	text, err := os.ReadFile(do.Report)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &pid, &address); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p, pid, address
}

// TestKilledControllingProcess: the serving process ends with it.
func TestKilledControllingProcess(t *testing.T) {
	p, pid, address := controller(t, order{Address: "127.0.0.1:0", Server: backend(t, "one")})
	wantGet(t, "http://"+address, "200 one")
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	n, err := 0, error(unix.EINTR) // of a signal of Go's runtime
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(place.Timeout.Milliseconds()))
	}
	if n != 1 {
		t.Errorf("the serving process %d runs on: %v", pid, err)
	}
}

// TestAdoption kills controlling processes: the serving process goes on, and the next one
// adopts it. One with another program file, or with other settings, replaces it.
func TestAdoption(t *testing.T) {
	dir, server := t.TempDir(), backend(t, "one")
	end := func() {
		if err := End(context.Background(), optionsAt(dir)); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Errorf("left behind: %s", left)
		}
	}
	t.Cleanup(end)
	// No client has this address, so the port stays free when the serving process has ended.
	const own = "127.0.0.77:0"
	p, pid, address := controller(t, order{Directory: dir, Address: own, Server: server})
	for range 2 {
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		wantGet(t, "http://"+address, "200 one")
		next, now, at := controller(t, order{Directory: dir, Address: own, Server: backend(t, "two")})
		if now != pid || at != address {
			t.Errorf("process %d at %s, want %d at %s", now, at, pid, address)
		}
		wantGet(t, "http://"+address, "200 two")
		server = backend(t, "one")
		p = next
		if next, now, _ = controller(t, order{Directory: dir, Address: own, Server: server}); now != pid {
			t.Errorf("process %d, want %d", now, pid)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		p = next
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	c, _, err := Start(t.Context(), optionsAt(dir), settings(address), configOf(server), nil)
	if err != nil {
		t.Fatal(err)
	}
	now, _ := c.Processes()
	if now == pid {
		t.Error("a process with other static settings was adopted")
	}
	wantGet(t, "http://"+address, "200 one")
	c.Part()
	end()
	if _, err := get("http://" + address); err == nil {
		t.Error("the address answers after End")
	}
}

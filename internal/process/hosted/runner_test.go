package hosted

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/model"
	values "fairlead/internal/model/gateway"
	"fairlead/internal/process/standalone"
	"fairlead/test/place"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{serving.Role: serving.Main})
	os.Exit(m.Run())
}

// newRunner returns a runner whose gateway ends with the test.
func newRunner(t *testing.T) *Runner {
	t.Helper()
	dir := t.TempDir()
	r := NewRunner(Options{Directory: filepath.Join(dir, "gateway"), Errors: filepath.Join(dir, "errors"),
		Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		if err := r.Run(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if r.isEnding() {
			<-r.ending
		}
	})
	return r
}

// one returns a gateway that sends all requests of the address to the server.
func one(address, server string) *model.Gateway {
	return &model.Gateway{
		Static: values.Static{EntryPoints: []values.EntryPoint{{Name: "web", Address: address}},
			Default: []string{"web"}},
		Config: values.Config{HTTP: values.HTTP{
			Routers: map[string]*values.Router{"all": {Rule: "PathPrefix(`/`)", Service: "all"}},
			Services: map[string]*values.Service{"all": {LoadBalancer: &values.LoadBalancer{
				Servers: []values.Server{{URL: server}}}}},
		}},
	}
}

// address returns the address of the running gateway.
func (r *Runner) address() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.controller.Address("web")
}

// ask returns the status and the body of a response.
func ask(url, user string) (string, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if user != "" {
		request.SetBasicAuth(user, "password")
	}
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return fmt.Sprintf("%d %s", answer.StatusCode, body), err
}

// own is an address that no client has, so that its port is free between two listeners.
const own = "127.0.0.78:0"

// TestEndWaitsForNoRequest ends a gateway during a request: Run returns before the request has
// ended, which completes, and the next gateway serves at the same port at once.
func TestEndWaitsForNoRequest(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/slow" {
			close(arrived)
			<-release
		}
		fmt.Fprint(w, "hello")
	}))
	defer s.Close()
	r := newRunner(t)
	if err := r.Run(t.Context(), one(own, s.URL)); err != nil {
		t.Fatal(err)
	}
	at := r.address()
	slow := make(chan string, 1)
	go func() {
		text, err := ask("http://"+at+"/slow", "")
		slow <- fmt.Sprint(text, err)
	}()
	<-arrived
	if err := r.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	// Run waits only a second for the gateway that ends, and a busy one closes its sockets later.
	for deadline := time.Now().Add(place.Timeout); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("tcp", at)
		if err != nil {
			break
		}
		if c.Close(); time.Now().After(deadline) {
			t.Error("the gateway that ends accepts connections")
			break
		}
	}
	if err := r.Run(t.Context(), one(at, s.URL)); err != nil {
		t.Fatalf("another gateway while the earlier one completes a request: %v", err)
	}
	if got, err := ask("http://"+at+"/", ""); got != "200 hello" {
		t.Errorf("%s, %v", got, err)
	}
	close(release)
	if got := <-slow; got != "200 hello<nil>" {
		t.Errorf("the request of the ended gateway: %s", got)
	}
}

// TestFilesAreWatched changes the file of a middleware's users, in a directory that does not
// exist at first, by replacing it as programs do that renew certificates.
func TestFilesAreWatched(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer s.Close()
	hash, err := bcrypt.GenerateFromPassword([]byte("password"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	r := newRunner(t)
	g := one("127.0.0.1:0", s.URL)
	g.Config.HTTP.Routers["all"].Middlewares = []string{"users"}
	g.Config.HTTP.Middlewares = map[string]*values.Middleware{"users": {BasicAuth: &values.BasicAuth{
		UsersFile: filepath.Join(dir, "users")}}}
	followed := make(chan struct{})
	go func() {
		r.Follow(t.Context())
		close(followed)
	}()
	t.Cleanup(func() { <-followed })
	if err := r.Run(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	url := "http://" + r.address() + "/"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"ann", "bob"} {
		fresh := filepath.Join(dir, "users.new")
		if err := os.WriteFile(fresh, []byte(user+":"+string(hash)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, filepath.Join(dir, "users")); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(place.Timeout)
		for got := ""; got != "200 hello"; time.Sleep(time.Millisecond) {
			if got, err = ask(url, user); time.Now().After(deadline) {
				t.Fatalf("%s: %q, %v", user, got, err)
			}
		}
	}
}

// TestContainersChangeBeforeStart changes the containers while the gateway cannot start, because another process has
// its port. When the port is free, it starts with the newest containers.
func TestContainersChangeBeforeStart(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer s.Close()
	taken, err := net.Listen("tcp", own)
	if err != nil {
		t.Fatal(err)
	}
	r := newRunner(t)
	engine := values.Docker{}
	r.docker = &following{engine, func() {}}
	at := taken.Addr().String()
	g := one(at, s.URL)
	g.Static.Docker = &engine
	if err := r.Run(t.Context(), g); !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("a gateway at a port of another process: %v", err)
	}
	config := one(at, s.URL).Config
	config.HTTP.Routers = map[string]*values.Router{"shop@docker": {Rule: "Host(`shop.test`)", Service: "all@docker",
		EntryPoints: []string{"web"}}}
	config.HTTP.Services = map[string]*values.Service{"all@docker": config.HTTP.Services["all"]}
	r.containersChanged(t.Context(), standalone.Source{Config: config})
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	shown, err := r.Ask(t.Context(), "/api/rawdata")
	if err != nil || !strings.Contains(string(shown), "shop@docker") {
		t.Errorf("the gateway has no router of a container: %s, %v", shown, err)
	}
}

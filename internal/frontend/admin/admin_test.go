package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/admin/admintest"
	"fairlead/internal/model"
)

// fake is a daemon that records its requests.
type fake struct {
	admin.AttachmentCalls
	admin.PublishCalls
	attach api.AttachRequest
	asked  int
	err    error
}

func (f *fake) Attach(_ context.Context, r api.AttachRequest) (api.Result, error) {
	f.attach = r
	f.asked++
	return api.Result{Changed: true, Notes: []string{"a note"}, Attachments: []api.View{{
		Attachment: model.Attachment{Endpoint: r.Endpoint, Ref: "netns:web"}, Status: api.Up,
		Publishes: []api.PublishedView{{Publish: model.Publish{Via: model.ViaNAT, Proto: model.TCP,
			HostPorts: model.Port(80), Ports: model.Port(80)}}}}}}, f.err
}

func (f *fake) Attachments() []api.View {
	return []api.View{{Attachment: model.Attachment{Ref: "pid:7"}}}
}

// daemon returns the calls that the fake has.
func (f *fake) daemon() admin.Daemon { return admin.Daemon{Attachments: f, Publishes: f} }

func TestClientAndServer(t *testing.T) {
	f := &fake{}
	client := admin.NewClient(admintest.Serve(t, f.daemon()))
	request := api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: "web",
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
		Routes:    []model.Route{{To: netip.MustParsePrefix("10.0.0.0/8")}}, Limit: model.Limit{Out: 1e6}}, Keep: true,
		DryRun: true}
	got, err := admin.Attach.Do(context.Background(), client, request)
	if err != nil || !reflect.DeepEqual(f.attach, request) {
		t.Errorf("the daemon got %+v, %v; want %+v", f.attach, err, request)
	}
	if want, _ := f.Attach(context.Background(), request); !reflect.DeepEqual(got, want) {
		t.Errorf("the client got %+v; want %+v", got, want)
	}
	if all, err := client.Attachments(context.Background()); err != nil || len(all) != 1 || all[0].Ref != "pid:7" {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestOriginOfPublishes sends publishes that name files as their origin. They are a command's: only the files of a set may
// declare something as theirs.
func TestOriginOfPublishes(t *testing.T) {
	f := &fake{}
	request := api.AttachRequest{Publishes: []model.Publish{{Origin: model.FileSet("site")}}}
	if _, err := admin.Attach.Do(t.Context(), admin.NewClient(admintest.Serve(t, f.daemon())), request); err != nil {
		t.Fatal(err)
	}
	if len(f.attach.Publishes) != 1 || f.attach.Publishes[0].Origin != model.FromCommand {
		t.Errorf("the daemon got %+v", f.attach.Publishes)
	}
}

func TestErrorsAreTyped(t *testing.T) {
	taken := &model.PortTakenError{Publish: model.Publish{Proto: model.TCP}, Owner: "nginx"}
	for code, cause := range map[api.Code]error{
		api.Invalid:  &api.Fault{Code: api.Invalid, Err: errors.New("no")},
		api.NotFound: &api.Fault{Code: api.NotFound, Err: errors.New("no")},
		api.Conflict: &api.Fault{Code: api.Conflict, Err: errors.New("no")}, api.PortTaken: taken,
		api.Failed: errors.New("no"),
	} {
		refuses := (&fake{err: fmt.Errorf("attach: %w", cause)}).daemon()
		_, err := admin.Attach.Do(context.Background(), admin.NewClient(admintest.Serve(t, refuses)),
			api.AttachRequest{})
		if api.CodeOf(err) != code || err.Error() != "attach: "+cause.Error() {
			t.Errorf("%s: %v (%s)", code, err, api.CodeOf(err))
		}
	}
	_, err := admin.NewClient(filepath.Join(t.TempDir(), "none")).Attachments(context.Background())
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a daemon: %v", err)
	}
}

// ask sends a request with this body, and returns the status and the error.
func ask(t *testing.T, socket, method, path, body string) (int, admin.Error) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn,
		error) {
		return net.Dial("unix", socket)
	}}}
	r, err := http.NewRequest(method, "http://x"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var failure admin.Error
	if err := json.NewDecoder(response.Body).Decode(&failure); err != nil {
		t.Errorf("%s %s: the response is not JSON: %v", method, path, err)
	}
	return response.StatusCode, failure
}

func TestHostileRequests(t *testing.T) {
	f := &fake{}
	socket := admintest.Serve(t, f.daemon())
	for name, c := range map[string]struct {
		method, path, body string
		status             int
	}{
		"no JSON":         {"POST", "/v1/attach", "\x00\xff", 400},
		"truncated":       {"POST", "/v1/attach", `{"network":`, 400},
		"empty":           {"POST", "/v1/attach", "", 400},
		"a list":          {"POST", "/v1/attach", `[]`, 400},
		"unknown field":   {"POST", "/v1/attach", `{"netwrok":"lan"}`, 400},
		"two objects":     {"POST", "/v1/attach", `{}{}`, 400},
		"invalid address": {"POST", "/v1/attach", `{"addresses":["1.2.3"]}`, 400},
		"too large":       {"POST", "/v1/attach", `{"name":"` + strings.Repeat("x", 2<<20) + `"}`, 400},
		"too deep":        {"POST", "/v1/attach", strings.Repeat(`{"limit":`, 20000), 400},
		"another path":    {"POST", "/v1/../attach", `{}`, 404},
		"another version": {"POST", "/v2/attach", `{}`, 404},
		"another method":  {"GET", "/v1/attach", ``, 404},
	} {
		status, failure := ask(t, socket, c.method, c.path, c.body)
		if status != c.status || failure.Code == "" || failure.Message == "" {
			t.Errorf("%s: %d %+v; want %d", name, status, failure, c.status)
		}
	}
	if f.asked != 0 {
		t.Errorf("the daemon got %d requests, want none", f.asked)
	}
}

// TestUnfinishedRequestDoesNotBlockOthers leaves a request unfinished and makes
// another one.
func TestUnfinishedRequestDoesNotBlockOthers(t *testing.T) {
	socket := admintest.Serve(t, new(fake).daemon())
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _,
		err := io.WriteString(conn, "POST /v1/attach HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.NewClient(socket).Attachments(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestOnlyRootIsAllowed makes a request as another user, to whom the socket's mode
// gives access by mistake.
func TestOnlyRootIsAllowed(t *testing.T) {
	f := &fake{}
	socket := admintest.Serve(t, f.daemon())
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	if err := errors.Join(os.Chmod(socket, 0o666), os.Chmod(filepath.Dir(socket), 0o755),
		os.Chmod(filepath.Dir(filepath.Dir(socket)), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", socket)
	cmd.Env = append(os.Environ(), "FAIRLEAD_TEST_ASK="+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "403 Forbidden") {
		t.Errorf("another user got %q, %v", out, err)
	}
	if f.asked != 0 {
		t.Error("the daemon got the request")
	}
}

func TestMain(m *testing.M) {
	if socket := os.Getenv("FAIRLEAD_TEST_ASK"); socket != "" {
		os.Exit(askAsOther(socket))
	}
	os.Exit(m.Run())
}

// askAsOther prints the first line of the response to a request.
func askAsOther(socket string) int {
	conn, err := net.DialTimeout("unix", socket, time.Minute)
	if err == nil {
		_, err = io.WriteString(conn,
			"POST /v1/attach HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
	}
	line := ""
	if err == nil {
		line, err = bufio.NewReader(conn).ReadString('\n')
	}
	fmt.Println(line, err)
	return 0
}

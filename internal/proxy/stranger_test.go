package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"fairlead/internal/child"
)

// stranger connects to the socket that its input names, or listens there if it
// can, and prints the result.
func stranger() int {
	var path string
	_, _ = fmt.Scan(&path)
	if l, err := net.Listen("unix", path); err == nil {
		fmt.Println("listening")
		_, _ = l.Accept()
		select {}
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		err = json.NewEncoder(conn).Encode(request{ID: 1, Set: &Config{}})
	}
	var answer response
	if err == nil {
		err = json.NewDecoder(conn).Decode(&answer)
	}
	fmt.Println(answer, err)
	return 0
}

// beStranger runs a stranger as an unprivileged user, and returns the line that
// it prints.
func beStranger(t *testing.T, path string) string {
	t.Helper()
	const unprivileged = 65534
	program := anotherProgram(t)
	for dir := filepath.Dir(program); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), child.Role+"="+strangerRole)
	cmd.Stdin = strings.NewReader(path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
	// The output can be read after the process has ended, unlike that of StdoutPipe.
	out, says, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout = says
	p, err := child.Start(context.Background(), cmd, child.Place{})
	if err := errors.Join(err, says.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// TestOtherUsersAreRefused: the mode of the socket and the check of the peer's
// credentials each keep other users out.
func TestOtherUsersAreRefused(t *testing.T) {
	at := keeping(t)
	cfg := oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", echo))
	_, kill := keptBy(t, "/proc/self/exe", at, cfg)
	kill()
	if got := beStranger(t, at.Socket); !strings.Contains(got, "permission denied") {
		t.Errorf("another user at the socket: %s", got)
	}
	if err := errors.Join(os.Chmod(at.Socket, 0o777), os.Chmod(filepath.Dir(at.Socket), 0o777)); err != nil {
		t.Fatal(err)
	}
	if got := beStranger(t, at.Socket); !strings.Contains(got, "EOF") && !strings.Contains(got, "reset") &&
		!strings.Contains(got, "broken pipe") {
		t.Errorf("another user at an open socket: %s", got)
	}
	if got := currentConfig(t, found(t, at)); !reflect.DeepEqual(got, cfg) {
		t.Errorf("the configuration is %+v", got)
	}
	at.Socket += "2"
	if got := beStranger(t, at.Socket); got != "listening\n" {
		t.Fatal(got)
	}
	if p, err := Find(t.Context(), at); p != nil || err == nil || !strings.Contains(err.Error(), "of user 65534") {
		t.Errorf("another user's proxy: %v, %v", p, err)
	}
}

func TestProxyOfAnotherNetnsIsRefused(t *testing.T) {
	at := keeping(t)
	_, kill := keptBy(t, "/proc/self/exe", at, oneTCP("127.0.0.1", 8001, serveTCP(t, "127.0.0.1", echo)))
	kill()
	cmd := exec.Command("sleep", "100")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	p, err := child.Start(context.Background(), cmd, child.Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Kill() }()
	elsewhere, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	at.Netns = elsewhere
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if p, err := Keep(ctx, at); err == nil || !strings.Contains(err.Error(), "another network namespace") {
		t.Errorf("got %v, %v", p, err)
	}
}

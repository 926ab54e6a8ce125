package dockerd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"fairlead/internal/lab/dockerd"
	"fairlead/test/engines"
)

// host runs the engine in a new network namespace.
var host = []string{"unshare", "--net"}

// TestEngine runs a program of a volume and one of an image in containers of each engine, and again after dockerd was
// killed and restarted.
func TestEngine(t *testing.T) {
	greet := build(t)
	for name, programs := range engines.All(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := engines.Start(t, dockerd.Options{Enter: host, Programs: programs})
			if err := e.ImportEmpty(t.Context(), "empty", "/volume/"+filepath.Base(greet)); err != nil {
				t.Fatal(err)
			}
			volume := filepath.Dir(greet) + ":/volume"
			if out, err := e.Run(t.Context(), "run", "--rm", "--volume", volume, "empty", "volume"); err != nil ||
				out != "hello volume" {
				t.Errorf("the program of a volume printed %q, %v", out, err)
			}
			engines.Image(t, e, "greet", greet)
			for range 2 {
				out, err := e.Run(t.Context(), "run", "--rm", "--publish", "8080:80", "greet", "web")
				if err != nil || out != "hello web" {
					t.Fatalf("the container printed %q, %v", out, err)
				}
				if err := e.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if err := e.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestCommandSharesTheHost: a command on the engine's host has the engine's files
// and links. The files are not on the real host.
func TestCommandSharesTheHost(t *testing.T) {
	e := engines.Start(t, dockerd.Options{Enter: host})
	out, err := e.Command(t.Context(), "sh", "-ec", "touch "+dockerd.Plugins+
		"/x.sock; cat /run/docker.pid; ls /sys/class/net /sys/fs/cgroup").Output()
	if err != nil || !strings.Contains(string(out), "docker0") || !strings.Contains(string(out), "engine") {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := os.Stat(e.Root() + dockerd.Plugins + "/x.sock"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dockerd.Plugins + "/x.sock"); err == nil {
		t.Error("the file is on the real host too")
	}
}

// TestStopLeavesNothing: after Stop, no process of the engine is left, and no file
// where dockerd and containerd write by default, although a container was running.
func TestStopLeavesNothing(t *testing.T) {
	before := inventory(t)
	e := engines.Start(t, dockerd.Options{Enter: host, Flags: []string{"--live-restore"}})
	holder := e.PID()
	engines.Image(t, e, "greet", build(t))
	if _, err := e.Run(t.Context(), "run", "--detach", "greet", "and wait"); err != nil {
		t.Fatal(err)
	}
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
	if got := inventory(t); got != before {
		t.Errorf("after Stop:\n%s\nbefore Start:\n%s", got, before)
	}
	if err := syscall.Kill(holder, 0); err != syscall.ESRCH {
		t.Errorf("the holder still runs: %v", err)
	}
}

func TestStartReturnsOutputOfDockerd(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "dockerd"), []byte("#!/bin/sh\necho no such flag\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	group, err := os.MkdirTemp(cgroups(), "dockerd-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(group)
	defer os.Remove(filepath.Join(group, "engine"))
	opened, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	_, err = dockerd.Start(t.Context(), dockerd.Options{Enter: host, Cgroup: opened, Programs: dir})
	if err == nil || !strings.Contains(err.Error(), "dockerd has ended (exit status 0): no such flag") {
		t.Errorf("got %v", err)
	}
}

// cgroups returns where cgroup v2 is mounted: alone, or beside v1.
func cgroups() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err == nil {
		return "/sys/fs/cgroup"
	}
	return "/sys/fs/cgroup/unified"
}

// inventory lists the files that an engine would change if it wrote outside its
// own directories.
func inventory(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c",
		"ls -lR /etc/docker /opt/containerd /var/lib/docker /var/lib/containerd /run/docker /run/containerd /run/docker.sock 2>&1").CombinedOutput()
	if len(out) == 0 {
		t.Fatal(err)
	}
	return string(out)
}

// build builds a program that greets its argument; with the argument "and wait" it
// runs until it gets a signal.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "greet.go")
	text := `package main
import ("os"; "os/signal")
func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended)
	os.Stdout.WriteString("hello " + os.Args[1])
	if os.Args[1] == "and wait" {
		<-ended
	}
}`
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "greet"), source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "greet")
}

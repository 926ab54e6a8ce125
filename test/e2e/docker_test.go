package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"fairlead/internal/lab/dockerd"
)

// docker is a real Docker engine in a room. Its host has the room's links, firewall and cgroups,
// and separate files below /run.
type docker struct {
	room   *room
	engine *dockerd.Engine
}

// newDocker starts the engine, with the image of a server. From then on the room's commands run on
// the engine's host.
func newDocker(t *testing.T, r *room) *docker {
	t.Helper()
	group, err := os.Open(r.groups)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { group.Close() })
	e, err := dockerd.Start(context.WithoutCancel(t.Context()), dockerd.Options{
		Cgroup: group, Enter: append([]string{"env", r.mark, "nsenter"}, r.enter...),
		Flags: []string{"--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("dockerd's log:\n%s", e.Log())
		}
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	r.enter = []string{"-t", fmt.Sprint(e.PID()), "--mount", "--net", "--pid", "--cgroup", "--wdns=" + r.dir, "--"}
	build := exec.Command("go", "build", "-o", r.file("server"), "./testdata/server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	if err := e.Import(t.Context(), "server", r.file("server")); err != nil {
		t.Fatal(err)
	}
	return &docker{r, e}
}

// start starts a container, which stops with the engine.
func (d *docker) start(name string, options ...string) {
	d.room.t.Helper()
	d.room.sh("docker run -d --name " + name + " " + strings.Join(options, " ") + " server > /dev/null")
}

// TestContainers selects containers of a real Docker engine by name and ID.
func TestContainers(t *testing.T) {
	r := newRoom(t)
	d := newDocker(t, r)
	d.start("web", "--network none")
	d.start("hosted", "--network host")
	id := strings.TrimSpace(r.sh("docker inspect -f '{{.Id}}' web"))
	pid := strings.TrimSpace(r.sh("docker inspect -f '{{.State.Pid}}' web"))
	for _, name := range []string{"web", "container:web", id, id[:12], "container:" + id[:5], pid} {
		if got := r.succeed("exec", name, "--", "ls", "/sys/class/net"); got != "lo\n" {
			t.Errorf("%s has the links %q, want only lo", name, got)
		}
	}
	r.refuse(2, []string{"it is in the host's own network namespace"}, "exec", "hosted", "--", "true")
	r.refuse(1, []string{"no such sandbox is running"}, "exec", "container:other", "--", "true")
	r.sh("ip netns add web")
	r.refuse(1, []string{"the name is ambiguous: say which of netns:web, container:web"}, "exec", "web", "--", "true")
	r.sh("ip netns del web")
	r.sh("docker stop web")
	r.refuse(1, []string{"the container is exited: start it first"}, "exec", "web", "--", "true")
	r.sh("docker start web")
	r.succeed("exec", "web", "--", "true")
}

// TestInspect inspects a container that is attached and published.
func TestInspect(t *testing.T) {
	r := newRoom(t)
	d := newDocker(t, r)
	d.start("web", "--network none")
	r.succeed("network", "create", "lan", "--subnet", "172.30.0.0/24")
	r.succeed("attach", "lan", "web")
	r.succeed("publish", "web", "8080:8080", "--via", "nat")
	r.succeed("publish", "web", "9090:9090/udp", "--via", "nat")
	r.hears(":8080", []string{binary, "exec", "web", "--", "ss", "-Hltn"})
	got := regexp.MustCompile(` +`).ReplaceAllString(r.succeed("inspect", "web"), " ")
	for _, line := range []string{
		`container:web pid \d+ /proc/\d+/ns/net`,
		`eth0 veth up 1500 \S+ 172\.30\.0\.2/24 \S+ in \S+ web \d.*`,
		`default 172\.30\.0\.1 eth0`,
		`\[::\]:8080 tcp server \(pid \d+, container [0-9a-f]{12}\)`,
		`web lan bridge eth0 up`,
		`8080/tcp web:8080 bridge\+nat server \(pid \d+, container [0-9a-f]{12}\)`,
		`9090/udp web:9090 bridge\+nat no process listens`,
	} {
		if !regexp.MustCompile(`(?m)^` + line + ` ?$`).MatchString(got) {
			t.Errorf("no line is like %s:\n%s", line, got)
		}
	}
	r.succeed("detach", "web")
}

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// docker is a real Docker engine in a room. What it changes beside files, /run,
// mounts, links and firewall, is the room's.
type docker struct {
	room *room
	// groups is the parent of the containers' cgroups.
	groups string
}

// engines prepares the room for containerd and dockerd: their sockets and
// states are the room's, and their data is in its folder.
const engines = `
mount -t tmpfs none /run
mkdir /run/netns
cat > containerd.toml <<EOF
version = 2
root = "$PWD/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "/run/containerd.sock"
EOF
echo {} > dockerd.json
`

// newDocker starts the engine, with an image that serves.
func newDocker(t *testing.T, r *room) *docker {
	t.Helper()
	d := &docker{r, fmt.Sprintf("fairlead-e2e-%d", os.Getpid())}
	r.sh(engines)
	d.serve("containerd", "--config", r.file("containerd.toml"))
	r.sh("until [ -S /run/containerd.sock ]; do :; done")
	d.serve("dockerd", "--config-file", r.file("dockerd.json"), "--data-root", r.file("docker"), "--exec-root", "/run/docker",
		"--pidfile", "/run/docker.pid", "--host", "unix:///run/docker.sock", "--containerd", "/run/containerd.sock",
		"--storage-driver", "vfs", "--cgroup-parent", "/"+d.groups, "--exec-opt", "native.cgroupdriver=cgroupfs",
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false")
	r.sh("until docker version; do :; done > /dev/null 2>&1")
	build := exec.Command("go", "build", "-o", r.file("root/server"), "./testdata/server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	r.sh("tar -C root -c . | docker import --change 'CMD [\"/server\"]' - server > /dev/null")
	return d
}

// serve runs one of the engine's programs until the test's end; the last to
// start is the first to end.
func (d *docker) serve(args ...string) {
	d.room.t.Helper()
	cmd := d.room.after(args...)
	log, err := os.Create(d.room.file(args[0] + ".log"))
	if err != nil {
		d.room.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		d.room.t.Fatal(err)
	}
	d.room.t.Cleanup(func() {
		if d.room.t.Failed() {
			d.room.t.Logf("%s says:\n%s", args[0], d.room.read(args[0]+".log"))
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		log.Close()
		parents, _ := filepath.Glob("/sys/fs/cgroup/*/" + d.groups)
		for _, p := range append(parents, filepath.Join("/sys/fs/cgroup", d.groups)) {
			removeGroups(p)
		}
	})
}

// start starts a container, which ends before the engine does.
func (d *docker) start(name string, options ...string) {
	d.room.t.Helper()
	d.room.sh("docker run -d --name " + name + " " + strings.Join(options, " ") + " server > /dev/null")
	d.room.t.Cleanup(func() {
		if out, err := d.room.after("docker", "rm", "-f", name).CombinedOutput(); err != nil {
			d.room.t.Errorf("remove the container %s: %v\n%s", name, err, out)
		}
	})
}

// after is a command in the room that may run when the test has ended.
func (r *room) after(args ...string) *exec.Cmd {
	with := r.command(args...)
	cmd := exec.Command(with.Path, with.Args[1:]...)
	cmd.Env = with.Env
	return cmd
}

// TestContainers names containers of a real Docker engine.
func TestContainers(t *testing.T) {
	r := newRoom(t)
	d := newDocker(t, r)
	d.start("web", "--network none")
	d.start("hosted", "--network host")
	id := strings.TrimSpace(r.sh("docker inspect -f '{{.Id}}' web"))
	pid := strings.TrimSpace(r.sh("docker inspect -f '{{.State.Pid}}' web"))
	for _, name := range []string{"web", "container:web", id, id[:12], "container:" + id[:5], pid} {
		if got := r.succeed("exec", name, "--", "ls", "/sys/class/net"); got != "lo\n" {
			t.Errorf("%s has the links %q, want lo alone", name, got)
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

// TestInspect looks at a container that is attached and published.
func TestInspect(t *testing.T) {
	r := newRoom(t)
	d := newDocker(t, r)
	d.start("web", "--network none")
	r.succeed("network", "create", "lan", "--subnet", "172.30.0.0/24")
	r.succeed("attach", "lan", "web")
	r.succeed("publish", "web", "8080:8080", "--via", "nat")
	r.succeed("publish", "web", "9090:9090/udp", "--via", "nat")
	got := regexp.MustCompile(` +`).ReplaceAllString(r.succeed("inspect", "web"), " ")
	for _, line := range []string{
		`container:web pid \d+ /proc/\d+/ns/net`,
		`eth0 veth up 1500 \S+ 172\.30\.0\.2/24 \S+ in \S+ web \d.*`,
		`default 172\.30\.0\.1 eth0`,
		`\[::\]:8080 tcp server \(pid \d+, container [0-9a-f]{12}\)`,
		`web lan bridge eth0 up`,
		`8080/tcp web:8080 bridge\+nat server \(pid \d+, container [0-9a-f]{12}\)`,
		`9090/udp web:9090 bridge\+nat nobody listens`,
	} {
		if !regexp.MustCompile(`(?m)^` + line + ` ?$`).MatchString(got) {
			t.Errorf("no line is like %s:\n%s", line, got)
		}
	}
	r.succeed("detach", "web")
}

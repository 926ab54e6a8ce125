package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// nginx returns the command line of a web server that answers with its name and the local port of
// the connection. The directives say where it listens.
func (r *room) nginx(name string, listen ...string) []string {
	r.t.Helper()
	var server strings.Builder
	for _, at := range listen {
		fmt.Fprintf(&server, "listen %s; ", at)
	}
	conf := name + ".conf"
	r.write(conf, fmt.Appendf(nil, `daemon off; worker_processes 2; user root; pid %[1]s; error_log stderr;
events {}
http { access_log off; server { %[2]s location / { return 200 "%[3]s at $server_port\n"; } } }
`, r.file(name+".pid"), server.String(), name))
	return []string{"nginx", "-c", r.file(conf)}
}

// publish starts `fairlead run` with its flags, as one word, and a command.
func (r *room) publish(flags string, command []string) *process {
	r.t.Helper()
	return r.start(append(append(append([]string{"run"}, strings.Fields(flags)...), "--"), command...)...)
}

// get returns the command of a client that sends one request; peer is an address in socat's syntax.
func get(peer string) []string {
	wait := "5"
	if strings.HasPrefix(peer, "UDP") {
		wait = ".1" // UDP has no end of connection, and hears repeats the request
	}
	return []string{"sh", "-c", `printf 'GET / HTTP/1.0\r\n\r\n' | socat -t` + wait + ` -T` + wait + ` - ` + peer}
}

// hears runs the command repeatedly until it prints the answer.
func (r *room) hears(answer string, command []string) {
	r.t.Helper()
	var out []byte
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		if out, _ = r.command(command...).CombinedOutput(); strings.Contains(string(out), answer) {
			return
		}
	}
	r.t.Fatalf("%s never prints %q, last output:\n%s", command[len(command)-1], answer, out)
}

// refused fails the test if a process listens at the peer.
func (r *room) refused(peer string) {
	r.t.Helper()
	out, err := r.command(get(peer)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Connection refused") {
		r.t.Errorf("%s is not refused: %v\n%s", peer, err, out)
	}
}

// end sends SIGTERM to a workload, and checks its exit code.
func (p *process) end(code int) {
	p.room.t.Helper()
	p.signal(syscall.SIGTERM)
	p.wait().expect(p.room.t, code, nil)
}

// TestRunSideBySide runs two servers that both bind port 80, in both families, and a workload that
// connects to the container port of one server.
func TestRunSideBySide(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	one := r.publish("-p 8080:80 -p 8081:81", r.nginx("one", "80", "[::]:80", "81"))
	two := r.publish("-p 192.0.2.10:9080:80 -p [::1]:9080:80", r.nginx("two", "80", "[::]:80"))
	for peer, answer := range map[string]string{
		"TCP:127.0.0.1:8080":           "one at 80",
		"TCP:192.0.2.10:8080":          "one at 80",
		"TCP:[::1]:8080":               "one at 80",
		"TCP:[2001:db8:9::10]:8080":    "one at 80",
		"TCP:127.0.0.1:8081":           "one at 81",
		"TCP:192.0.2.10:9080":          "two at 80",
		"TCP:[::1]:9080":               "two at 80",
		"TCP:[::ffff:192.0.2.10]:9080": "two at 80",
	} {
		r.hears(answer, get(peer))
	}
	for _, peer := range []string{"TCP:127.0.0.1:80", "TCP:[::1]:80", "TCP:127.0.0.1:9080",
		"TCP:[2001:db8:9::10]:9080"} {
		r.refused(peer)
	}
	if out := r.succeed(append([]string{"run", "-p", "7000:7", "--"},
		get("TCP:127.0.0.1:81")...)...); !strings.Contains(out, "one at 81") {
		t.Errorf("another workload that connects to port 81 receives %s", out)
	}
	one.end(0)
	two.end(0)
	r.untouched(before)
}

// TestRunOneFamily runs servers that bind IPv4 and IPv6 separately, as Debian's nginx does, and
// publishes only IPv4.
func TestRunOneFamily(t *testing.T) {
	r := newRoom(t)
	one := r.publish("-p 127.0.0.1:8080:80", r.nginx("one", "80", "[::]:80"))
	two := r.publish("-p 127.0.0.1:9080:80", r.nginx("two", "80", "[::]:80"))
	r.hears("one at 80", get("TCP:127.0.0.1:8080"))
	r.hears("two at 80", get("TCP:127.0.0.1:9080"))
	r.refused("TCP:[2001:db8:9::10]:8080")
	one.end(0)
	two.end(0)
}

// TestRunInPIDNamespaces runs workloads on one host that have the same process ID.
func TestRunInPIDNamespaces(t *testing.T) {
	r := newRoom(t)
	for name, host := range map[string]string{"one": "8080", "two": "9080"} {
		first := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", binary, "run", "-p", host +
			":80", "--"}
		p := &process{room: r, cmd: r.command(append(first, r.nginx(name, "80")...)...)}
		p.launch()
		r.hears(name+" at 80", get("TCP:127.0.0.1:"+host))
	}
}

func TestRunDatagrams(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	hosts := map[string]string{"one": "5301", "two": "5302"}
	running := map[string]*process{}
	for name, host := range hosts {
		running[name] = r.publish("-p "+host+":53/udp",
			[]string{"socat", "UDP6-RECVFROM:53,fork,ipv6only=0", "SYSTEM:echo " + name})
	}
	for name, host := range hosts {
		for _, peer := range []string{"UDP4:127.0.0.1:", "UDP4:192.0.2.10:", "UDP6:[::1]:"} {
			r.hears(name, get(peer+host))
		}
	}
	for _, p := range running {
		p.end(128 + int(syscall.SIGTERM))
	}
	r.untouched(before)
}

// TestRunWithoutPrivilege checks that any user may bind a granted port below 1024.
func TestRunWithoutPrivilege(t *testing.T) {
	r := newRoom(t)
	p := r.publish("-p 443:80", append(slices.Clone(ordinaryUser), "socat", "TCP6-LISTEN:80,fork", "SYSTEM:echo web"))
	r.hears("web", get("TCP:127.0.0.1:443"))
	p.end(128 + int(syscall.SIGTERM))
}

// ordinaryUser is the prefix of a command that an ordinary user runs.
var ordinaryUser = []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}

// TestRunReusedPort checks that each process of a server can have a separate socket for the same
// port.
func TestRunReusedPort(t *testing.T) {
	r := newRoom(t)
	p := r.publish("-p 8080:80", r.nginx("web", "80 reuseport"))
	r.hears("web at 80", get("TCP:127.0.0.1:8080"))
	if sockets := strings.Fields(r.sh("ss -Hltn sport = 8080 | wc -l")); sockets[0] != "2" {
		t.Errorf("%s sockets have the port, want 2", sockets)
	}
	p.end(0)
}

func TestRunUnpublishedPorts(t *testing.T) {
	r := newRoom(t)
	server := r.nginx("web", "80", "81")
	t.Run("loopback", func(t *testing.T) {
		p := r.publish("-p 8080:80", server)
		r.hears("web at 81", get("TCP:127.0.0.1:81"))
		r.refused("TCP:192.0.2.10:81")
		p.end(0)
	})
	t.Run("allow", func(t *testing.T) {
		p := r.publish("-p 8080:80 --unpublished allow", server)
		r.hears("web at 81", get("TCP:192.0.2.10:81"))
		p.end(0)
	})
	t.Run("deny", func(t *testing.T) {
		p := r.publish("-p 8080:80 --unpublished deny", server)
		p.wait().expect(t, 1, []string{"bind() to 0.0.0.0:81 failed (13: Permission denied)"})
	})
}

// TestRunExitCode checks that the exit code is the command's, and for a signal the same as a
// shell's.
func TestRunExitCode(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	for script, code := range map[string]int{"exit 0": 0, "exit 42": 42, "kill -KILL $$": 128 + int(syscall.SIGKILL)} {
		o := r.publish("-p 8080:80", []string{"sh", "-c", script}).wait()
		if o.expect(t, code, nil); o.stderr != "" {
			t.Errorf("%s: standard error has %s", script, o.stderr)
		}
	}
	r.untouched(before)
}

// TestRunForwardsSignals checks that run forwards signals, and ends processes that the command
// leaves running.
func TestRunForwardsSignals(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			r := newRoom(t)
			before := r.snapshot()
			p := r.publish("-p 8080:80", []string{"sh", "-c",
				fmt.Sprintf(`trap "exit 42" %d; sleep 1000 & echo >ready; wait`, s)})
			r.until("the command has set its trap", func([]descendant) bool { return exists(r.file("ready")) })
			p.signal(s)
			p.wait().expect(t, 42, nil)
			if err := os.Remove(r.file("ready")); err != nil {
				t.Fatal(err)
			}
			r.untouched(before)
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestRunKilled checks that the command ends with run, that no eBPF program stays attached, and
// that the next run removes what is left and gets the port.
func TestRunKilled(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	// Processes that outlive run must not keep its output open.
	mute := []string{"sh", "-c", `exec "$@" >/dev/null 2>&1`, "sh"}
	p := r.publish("-p 8080:80", append(mute, r.nginx("web", "80")...))
	r.hears("web at 80", get("TCP:127.0.0.1:8080"))
	p.signal(syscall.SIGKILL)
	p.wait()
	left, err := filepath.Glob(filepath.Join(r.groups, "fairlead-run-*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("the cgroups that are left: %v, %v", left, err)
	}
	for _, path := range append(left, r.groups) {
		unhooked(t, path)
	}
	p = r.publish("-p 8080:80", append(mute, r.nginx("heir", "80")...))
	r.hears("heir at 80", get("TCP:127.0.0.1:8080"))
	p.end(0)
	r.untouched(before)
}

// unhooked fails the test if an eBPF program is attached to the bind hook of a cgroup.
func unhooked(t *testing.T, path string) {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	found, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: ebpf.AttachCGroupInet4Bind})
	if err != nil || len(found.Programs) != 0 {
		t.Errorf("%s has %v, %v", path, found, err)
	}
}

// TestRunPortTaken checks ports in use by a process, and ports granted to a workload that has not
// bound them yet.
func TestRunPortTaken(t *testing.T) {
	r := newRoom(t)
	before := r.snapshot()
	holder := r.publish("-p 8080:80 -p 8081:81", r.nginx("web", "80"))
	r.hears("web at 80", get("TCP:127.0.0.1:8080"))
	r.refuse(1, []string{"port taken by nginx (pid ", "choose another host port"}, "run", "-p", "8080:80", "--", "true")
	r.refuse(1, []string{"host port 8081 is granted to the workload in ", "fairlead-run-", "choose another"}, "run",
		"-p", "8081:80", "--", "true")
	holder.end(0)
	r.untouched(before)
}

// TestRunRequirements checks that the error says what the host lacks and what to do.
func TestRunRequirements(t *testing.T) {
	run := []string{binary, "run", "-p", "8080:80", "--", "true"}
	poor := []string{"setpriv", "--bounding-set", "-sys_admin,-bpf", "--inh-caps", "-sys_admin,-bpf"}
	only1 := []string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs none /sys/fs/cgroup && exec "$@"`, "sh"}
	for name, s := range map[string]struct {
		as   []string
		code int
		says string
	}{
		"ordinary user":             {ordinaryUser, 2, "root is needed to attach eBPF programs: run as root"},
		"root without capabilities": {poor, 1, "operation not permitted"},
		"cgroup v1 only":            {only1, 1, "no cgroup v2 at /sys/fs/cgroup or /sys/fs/cgroup/unified: mkdir -p"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			before := r.snapshot()
			p := &process{room: r, cmd: r.command(slices.Concat(s.as, run)...)}
			p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errors
			p.launch()
			p.wait().expect(t, s.code, []string{s.says})
			r.untouched(before)
		})
	}
}

package e2e_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// room represents a user's host: a network namespace with objects of other programs, and a mount
// namespace with separate cgroups, bpffs and named namespaces. Everything that is found there after
// a test was left over by the program.
type room struct {
	t *testing.T
	// dir is for the files that the program writes.
	dir string
	// groups is the directory that replaces the cgroup root.
	groups string
	// replaced lists the programs that replace has replaced.
	replaced []string
	// mark is in the environment of everything that the room starts, and so of all descendants.
	mark   string
	holder *exec.Cmd
	// enter contains nsenter's arguments to enter the room.
	enter []string
}

// cgroups returns the mount point of cgroup v2, which may be mounted beside v1.
func cgroups() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err == nil {
		return "/sys/fs/cgroup"
	}
	return "/sys/fs/cgroup/unified"
}

// furnish creates the room. Links and addresses come up asynchronously: the script waits for the
// last route that the kernel adds for each. The holder then waits until its input is closed.
const furnish = `
mount --make-rprivate /
mount --bind "$1" "$2"
mkdir -p /run/netns
mount -t tmpfs none /run/netns
mount -t bpf none /sys/fs/bpf
ip link set lo up
echo 1 > /proc/sys/net/ipv6/conf/default/addr_gen_mode
ip link add uplink type veth peer name router
ip addr add 192.0.2.10/24 dev uplink
ip -6 addr add 2001:db8:9::10/64 dev uplink nodad
ip link set uplink up
ip link set router up
ip route add default via 192.0.2.1
ip link add others type bridge
ip addr add 172.31.0.1/24 dev others
ip link set others up
nft -f - <<EOF
table ip others { chain nat { type nat hook prerouting priority dstnat; tcp dport 80 dnat to 172.31.0.2; }; }
EOF
for link in uplink router others; do
	until ip -6 route show table local dev $link | grep -q ^multicast; do :; done
done
until ip -6 route show table local dev uplink | grep -q '^local 2001:db8:9::10 '; do :; done
echo ready
exec cat
`

// newRoom creates a room that exists until the test ends.
func newRoom(t *testing.T) *room {
	t.Helper()
	r := &room{t: t, dir: t.TempDir(), mark: fmt.Sprintf("FAIRLEAD_E2E=%d-%s", os.Getpid(), t.Name())}
	groups, err := os.MkdirTemp(cgroups(), "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	r.groups = groups
	t.Cleanup(func() {
		// Servers that overwrite their environment have lost the mark.
		_ = os.WriteFile(filepath.Join(groups, "cgroup.kill"), []byte("1"), 0)
		// Killed processes end asynchronously.
		for end := time.Now().Add(timeout); exists(groups); removeGroups(groups) {
			if time.Now().After(end) {
				t.Errorf("%s cannot be removed", groups)
				return
			}
		}
	})
	r.holder = exec.Command("unshare", "--mount", "--net", "sh", "-ec", furnish, "furnish", groups, cgroups())
	stdin, err := r.holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := r.holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.holder.Stderr = os.Stderr
	if err := r.holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.end()
		stdin.Close()
		_ = r.holder.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("create the room: %q, %v", line, err)
	}
	r.enter = []string{"-t", fmt.Sprint(r.holder.Process.Pid), "--mount", "--net", "--wdns=" + r.dir, "--"}
	return r
}

// end ends what still runs: a daemon in the background that has nothing to do and stops, or anything after a failed
// test. Nothing writes into the room's directory afterwards.
func (r *room) end() {
	r.until("all processes have ended", func(left []descendant) bool {
		for _, d := range left {
			_ = syscall.Kill(d.pid, syscall.SIGKILL)
		}
		return len(left) == 0
	})
}

// removeGroups removes a cgroup and the cgroups below it.
func removeGroups(path string) {
	below, _ := filepath.Glob(filepath.Join(path, "*", ""))
	for _, p := range below {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			removeGroups(p)
		}
	}
	_ = os.Remove(path)
}

// command returns a command that runs in the room.
func (r *room) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(r.t.Context(), "nsenter", append(slices.Clone(r.enter), args...)...)
	// A daemon stores its files beside its socket.
	cmd.Env = append(os.Environ(), r.mark, "TERM=xterm", "NO_COLOR=", "FAIRLEAD_SOCKET="+r.file("fairlead.sock"),
		"FAIRLEAD_LAB_SHARED=1") // several packages are tested at the same time
	return cmd
}

// sh runs a line in the room, which must succeed, and returns its output.
func (r *room) sh(line string) string {
	r.t.Helper()
	cmd := r.command("sh", "-ec", line)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("%s: %v", line, err)
	}
	return string(out)
}

// replace replaces each program with a script, only in this room. An empty script hides the
// program, because it cannot be executed.
func (r *room) replace(script string, programs ...string) {
	r.t.Helper()
	stub := filepath.Join(r.t.TempDir(), "stub")
	mode := os.FileMode(0o755)
	if script == "" {
		mode = 0o644
	}
	if err := os.WriteFile(stub, []byte(script), mode); err != nil {
		r.t.Fatal(err)
	}
	for _, name := range programs {
		r.sh(fmt.Sprintf("mount --bind %s $(readlink -f $(command -v %s))", stub, name))
		r.replaced = append(r.replaced, name)
	}
}

// restore restores the replaced programs.
func (r *room) restore() {
	r.t.Helper()
	for _, name := range r.replaced {
		r.sh(fmt.Sprintf("umount $(readlink -f $(command -v %s))", name))
	}
	r.replaced = nil
}

// file returns a path for the program to write to.
func (r *room) file(name string) string { return filepath.Join(r.dir, name) }

func (r *room) write(name string, text []byte) {
	r.t.Helper()
	if err := os.WriteFile(r.file(name), text, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *room) read(name string) []byte {
	r.t.Helper()
	b, err := os.ReadFile(r.file(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// inventory prints the parts of the host's configuration that the program must leave unchanged.
const inventory = `
set -e
ip -o link
ip -o addr
ip route show table all
ip -6 route show table all
ip rule
ip -6 rule
ip netns
nft list ruleset
for f in /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/*/route_localnet /proc/sys/net/ipv6/conf/*/forwarding /proc/sys/net/bridge/*; do
	[ ! -e $f ] || echo $f $(cat $f)
done
find /sys/fs/bpf
grep nsfs /proc/self/mountinfo || true
`

// snapshot is the state of the host, with the cgroups and the program's descendants.
type snapshot struct {
	Host      []string
	Cgroups   []string
	Processes []string
	Files     []string
}

func (r *room) snapshot() snapshot {
	r.t.Helper()
	var s snapshot
	s.Host = strings.Split(r.sh(inventory), "\n")
	s.Cgroups = strings.Fields(r.sh("cd " + cgroups() + "; find . -mindepth 1 -type d | sort"))
	for _, p := range r.processes() {
		s.Processes = append(s.Processes, p.cmdline)
	}
	s.Files = strings.Fields(r.sh("find " + r.dir + " -name '.*'"))
	return s
}

// untouched fails the test unless the host is in the same state as before.
func (r *room) untouched(before snapshot) {
	r.t.Helper()
	if diff := cmp.Diff(before, r.snapshot()); diff != "" {
		r.t.Errorf("the host's state differs from before, was (-), is (+):\n%s", diff)
	}
}

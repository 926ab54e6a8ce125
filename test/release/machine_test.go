package release_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/place"
)

// Limits of the boot and of a command in a machine.
const (
	bootLimit    = 3 * time.Minute
	commandLimit = 5 * time.Minute
)

// The link between a machine and its client.
const (
	machineAddress = "192.0.2.1"
	clientAddress  = "192.0.2.2"
)

// machine is a Debian system with systemd as PID 1, in namespaces of its own. A client is on its link.
type machine struct {
	*testing.T
	// pid is the process of systemd in this machine's PID namespace.
	pid          int
	host, client *netns.Namespace
}

// boot boots the system below a directory. It ends with the test.
func boot(t *testing.T, lower string) *machine {
	t.Helper()
	group, work := kerneltest.Cgroup(t, kerneltest.CgroupRoot(t)), t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "sh", "-ec", `echo $$ >"$0/cgroup.procs"
exec unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child testdata/boot "$1" "$2"`, group, lower, work)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		removeGroups(t, group)
	})
	m := &machine{T: t}
	for end := time.Now().Add(bootLimit); m.pid == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the system below %s does not boot: %s", lower, &said)
		}
		m.pid = booted(cmd.Process.Pid)
		select {
		case <-ended:
			t.Fatalf("the system below %s does not boot: %s", lower, &said)
		default:
		}
	}
	if out, err := m.try("systemctl is-system-running --wait"); err != nil {
		failed, _ := m.try("systemctl --failed --no-pager; systemctl list-jobs --no-pager")
		t.Fatalf("the system below %s is %s%s", lower, out, failed)
	}
	m.connect()
	return m
}

// booted returns the child of a process if it is a systemd that can be asked, or 0.
func booted(parent int) (pid int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		return 0
	}
	if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) != "systemd\n" {
		return 0
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/systemd/private", pid)); err != nil {
		return 0
	}
	return pid
}

// removeGroups kills the processes of a cgroup that are left, and removes the cgroups below it.
func removeGroups(t *testing.T, group string) {
	if err := os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0); err != nil {
		t.Error(err)
	}
	var below []string
	err := filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && path != group {
			below = append(below, path)
		}
		return err
	})
	for _, dir := range slices.Backward(below) {
		for end := time.Now().Add(bootLimit); ; time.Sleep(time.Millisecond) {
			// A killed process belongs to its cgroup until it has ended.
			if failed := os.Remove(dir); failed == nil || time.Now().After(end) {
				err = errors.Join(err, failed)
				break
			}
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// connect gives the machine a link to its client.
func (m *machine) connect() {
	m.Helper()
	var err error
	if m.host, err = netns.Open(fmt.Sprintf("/proc/%d/ns/net", m.pid)); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { m.host.Close() })
	m.client = kerneltest.Netns(m)
	in := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), m.client.File().Fd())
	kerneltest.Run(m, m.host, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", in)
	kerneltest.Run(m, m.host, "ip", "link", "set", "lo", "up")
	for ns, address := range map[*netns.Namespace]string{m.host: machineAddress, m.client: clientAddress} {
		kerneltest.Run(m, ns, "ip", "addr", "add", address+"/24", "dev", "eth0")
		kerneltest.Run(m, ns, "ip", "link", "set", "eth0", "up")
	}
}

// try runs a line of shell script in the machine.
func (m *machine) try(line string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "-t", fmt.Sprint(m.pid), "--all", "env", "-i", "LC_ALL=C", "HOME=/root",
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-ec", line)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is try for a line that must not fail.
func (m *machine) run(line string) string {
	m.Helper()
	out, err := m.try(line)
	if err != nil {
		log, _ := m.try("journalctl --no-pager -u 'fairlead*' -n 40")
		m.Fatalf("%s: %v\n%s\n%s", line, err, out, log)
	}
	return out
}

// install installs a package as an administrator does.
func (m *machine) install(deb string) {
	m.Helper()
	text, err := os.ReadFile(deb)
	if err == nil {
		err = os.WriteFile(fmt.Sprintf("/proc/%d/root/tmp/fairlead.deb", m.pid), text, 0o644)
	}
	if err != nil {
		m.Fatal(err)
	}
	// The index of this machine's man pages is large, and the test reads none.
	m.run("dpkg --no-triggers -i /tmp/fairlead.deb")
}

// sandbox starts a sandbox, and a server in it for each port.
func (m *machine) sandbox(name string, ports ...uint16) {
	m.Helper()
	m.run("systemd-run --quiet --unit=box-" + name + " -p PrivateNetwork=yes sleep infinity")
	ns, err := netns.Open(fmt.Sprintf("/proc/%d/root/proc/%s/ns/net", m.pid, m.process("box-"+name)))
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { ns.Close() })
	for _, port := range ports {
		place.Answer(m, ns.Do, fmt.Sprint(":", port), func(r place.Request) string {
			return fmt.Sprintf("%s:%d %s", name, port, r.Text)
		})
	}
}

// process returns the main process of a unit, as the machine numbers it.
func (m *machine) process(unit string) string {
	m.Helper()
	return strings.TrimSpace(m.run("systemctl show --property=MainPID --value " + unit))
}

// named returns the files with the program's name, of the system and of the bpffs.
func (m *machine) named() []string {
	m.Helper()
	return strings.Fields(m.run("find /etc /usr /var /run /sys/fs/bpf -xdev -name '*fairlead*' " +
		"! -path '*/man8/*' ! -path '/var/log/*' | sort"))
}

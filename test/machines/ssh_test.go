package machines_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
)

// sshMachine is a machine with an SSH server, and the settings of a client for it.
type sshMachine struct {
	marker
	// temporary is its directory for temporary files.
	temporary string
	// environment lets the client's machine find the SSH server as "far".
	environment []string
	server      *netns.Namespace
	sshd        *child.Process
	before      string
}

// startSSHD starts an SSH server on a machine. It has its own /run.
func startSSHD(t *testing.T, on *netns.Namespace) sshMachine {
	t.Helper()
	dir := t.TempDir()
	m := sshMachine{marker: newMarker(t), temporary: filepath.Join(dir, "tmp"), server: on, before: linksOf(t, on)}
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(m.temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"host", "user"} {
		kerneltest.Run(t, on, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key))
	}
	public, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write("known", serverAddress+" "+string(public), 0o600)
	write("sshd_config", fmt.Sprintf("ListenAddress %s\nHostKey %[2]s/host\nAuthorizedKeysFile %[2]s/user.pub\nPidFile none\n"+
		"UsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"+
		"PermitRootLogin prohibit-password\nSetEnv TMPDIR=%[3]s %s\n", serverAddress, dir, m.temporary, m.text()), 0o600)
	write("config", fmt.Sprintf("Host far\n HostName %s\n User root\n IdentityFile %[2]s/user\nHost *\n IdentitiesOnly yes\n"+
		" UserKnownHostsFile %[2]s/known\n GlobalKnownHostsFile none\n", serverAddress, dir), 0o600)
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	write("bin/ssh", fmt.Sprintf("#!/bin/sh\nexec %s -F %s/config \"$@\"\n", ssh, dir), 0o700)
	m.environment = []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), m.text()}
	m.run(t, filepath.Join(dir, "sshd_config"))
	return m
}

// run runs the SSH server until the test ends, and waits until it listens.
func (m *sshMachine) run(t *testing.T, config string) {
	t.Helper()
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-c",
		`mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec "$@"`, "sh", sshd, "-D", "-e", "-f", config)
	var text strings.Builder
	cmd.Stderr, cmd.WaitDelay = &text, time.Second
	if m.sshd, err = child.Start(t.Context(), cmd, child.Place{Netns: m.server.File()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.sshd.Kill()
		m.endSessions(t)
		if t.Failed() {
			t.Logf("sshd: %s", text.String())
		}
	})
	await(t, "the SSH server listens", func() bool {
		return strings.Contains(kerneltest.Run(t, m.server, "ss", "-Hltn"), serverAddress+":22")
	})
}

// endSessions kills the SSH server's processes for sessions, all of which are in the
// machine's namespace. If the link is lost, they would wait until TCP gives up.
func (m *sshMachine) endSessions(t *testing.T) {
	var machine syscall.Stat_t
	if err := syscall.Fstat(int(m.server.File().Fd()), &machine); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var at syscall.Stat_t
		if syscall.Stat(file, &at) == nil && at.Ino == machine.Ino && at.Dev == machine.Dev {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}

// startLab starts a laboratory that starts its agent with ssh.
func (m *sshMachine) startLab(t *testing.T, on *netns.Namespace, args ...string) command {
	t.Helper()
	return start(t, on, m.environment, append([]string{"lab", "run", "--shared", "--ssh", "far"}, args...)...)
}

// nothingLeft waits until neither machine has a process of the laboratory, and checks
// that the server's has no file and no link of it.
func (m *sshMachine) nothingLeft(t *testing.T, lab command) {
	t.Helper()
	m.noProcesses(t)
	nothingLeft(t, lab)
	left, err := os.ReadDir(m.temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files: %v, %v, want none", left, err)
	}
	if after := linksOf(t, m.server); after != m.before {
		t.Errorf("links of the server's machine: %s, want %s", after, m.before)
	}
}

// TestSSH: the laboratory starts the agent over ssh with a copy of its binary, and
// leaves nothing behind.
func TestSSH(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	m := startSSHD(t, server)
	file := filepath.Join(t.TempDir(), "report.json")
	lab := m.startLab(t, client, "publish", "nat", "--workload", "tcp-rr", "--client", "remote", "--rounds", "1",
		"--duration", "30ms", "--json", file)
	lab.ended(t)
	if err := lab.Wait(); err != nil {
		t.Fatalf("%v: %s", err, lab.text)
	}
	rep := readReport(t, file)
	if len(rep.Machines) != 2 || rep.Machines[0].Address != serverAddress+":5210" || len(rep.Runs) == 0 {
		t.Errorf("machines %+v, %d runs", rep.Machines, len(rep.Runs))
	}
	m.nothingLeft(t, lab)
}

// TestSSHRefused: if ssh cannot log in, or the agent does not start, the error has the
// reason.
func TestSSHRefused(t *testing.T) {
	t.Parallel()
	client, server, _ := machines(t)
	m := startSSHD(t, server)
	for target, want := range map[string]string{
		"ssh://" + serverAddress: "check that `ssh ssh://192.0.2.2 true` works without a password",
		"far/eth7":               "eth7",
		"far;true":               "the host \"far;true\" is invalid",
	} {
		lab := start(t, client, m.environment, "lab", "run", "modes", "--shared", "--ssh", target)
		lab.ended(t)
		if err := lab.Wait(); err == nil || !strings.Contains(lab.text.String(), want) {
			t.Errorf("%s: %v: %s\nwant %q", target, err, lab.text, want)
		}
		m.nothingLeft(t, lab)
	}
}

// TestSSHKilled: whichever process is killed, at any moment, nothing is left on either
// machine.
func TestSSHKilled(t *testing.T) {
	victims := []string{"laboratory", "ssh", "agent"}
	for round := range killRounds(t, len(victims)) {
		victim := victims[round%len(victims)]
		t.Run(fmt.Sprint(victim, round), func(t *testing.T) {
			t.Parallel()
			client, server, _ := machines(t)
			m := startSSHD(t, server)
			lab := m.startLab(t, client, "publish", "--rounds", "1000", "--duration", "20ms")
			pid := lab.Cmd.Process.Pid
			switch victim {
			case "ssh":
				pid = m.find(t, "ssh\x00")
			case "agent":
				pid = m.find(t, "/proc/self/fd/4\x00")
			}
			moment(t, round)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatalf("kill %s: %v: %s", victim, err, lab.text)
			}
			lab.ended(t)
			m.nothingLeft(t, lab)
		})
	}
}

// TestSSHLostLink: when the link is lost, the laboratory and the agent end without a
// packet from the other machine.
func TestSSHLostLink(t *testing.T) {
	t.Parallel()
	client, server, between := machines(t)
	m := startSSHD(t, server)
	lab := m.startLab(t, client, "publish", "--rounds", "1000", "--duration", "20ms")
	awaitGroups(t, m.find(t, "/proc/self/fd/4\x00"), true)
	kerneltest.Run(t, between, "ip", "link", "set", "br0", "down")
	lab.ended(t)
	m.nothingLeft(t, lab)
}

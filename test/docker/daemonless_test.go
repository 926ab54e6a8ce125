package docker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"syscall"

	"fairlead/internal/model"
)

// daemonless kills the daemon, and runs commands in its place.
func (h *host) daemonless() {
	before := h.inventory()
	h.kill()
	h.sh("mount -t tmpfs none /var/lib")
	h.startWith("--state-dir", "/var/lib/fairlead") // the default of commands
	h.docker("network", "create", "-d", "fairlead", "--subnet", "172.30.0.0/24", "net")
	vias := []model.Via{model.ViaNAT, model.ViaEBPF, model.ViaProxy}
	var pids []string
	for i, via := range vias {
		h.docker("run", "-d", "--name", string(via), "--network", "name=net,driver-opt=via="+string(via), "-p",
			fmt.Sprintf("%d:80", 8080+i), "program", "serve", "tcp:80")
		pids = append(pids, h.docker("inspect", "-f", "{{.State.Pid}}", string(via)))
	}
	h.kill()
	h.servesDocker()
	h.refusesEmptyStore(vias)
	h.reportsEndedSandboxes(vias, pids)

	h.startWith("--state-dir", "/var/lib/fairlead")
	if err := h.Restart(h.whole.Context()); err != nil {
		h.Fatal(err)
	}
	for _, via := range vias {
		h.docker("rm", "-f", string(via))
	}
	h.docker("network", "rm", "net")
	h.empty()
	h.kill()
	h.sh("umount /var/lib")
	h.start()
	h.unchanged(before)
}

// servesDocker runs a command that starts the next daemon, which serves Docker as the first daemon
// did.
func (h *host) servesDocker() {
	h.Helper()
	if out := h.sh(h.dir + "/fairlead network create lan --subnet 172.30.9.0/24"); !strings.Contains(out,
		"started a daemon in the background") {
		h.Fatalf("a daemon already runs: %s", out)
	}
	h.serves("later", "-p", "8083:80")
	h.asks(lan, "tcp", hostAddr+":8083")
	h.docker("rm", "-f", "later")
	h.sh(h.dir + "/fairlead network rm lan; pid=$(cat /run/fairlead/pid); killed $pid")
}

// refusesEmptyStore runs a command that starts a daemon with an empty store while the LAN sends
// requests. The daemon must refuse to start, and no request may fail.
func (h *host) refusesEmptyStore(vias []model.Via) {
	h.Helper()
	var loads []func() string
	for i, via := range vias {
		h.asks(lan, "tcp", fmt.Sprintf("%s:%d", hostAddr, 8080+i))
		loads = append(loads, h.asksOn(fmt.Sprintf("%s:%d", hostAddr, 8080+i), string(via)))
	}
	out, err := h.Command(h.Context(), h.dir+"/fairlead", "network", "create", "other", "--subnet", "172.30.8.0/24",
		"--socket", "/run/other/s").CombinedOutput()
	if err == nil || !strings.Contains(string(out),
		"this network namespace has networks of a daemon that does not run") {
		h.Errorf("a daemon with an empty store starts: %v\n%s", err, out)
	}
	for i, via := range vias {
		h.asks(lan, "tcp", fmt.Sprintf("%s:%d", hostAddr, 8080+i))
		if said := loads[i](); strings.Contains(said, "failed") || strings.Contains(said, "\n") || said == "" {
			h.Errorf("answers to the LAN via %s:\n%s", via, said)
		}
	}
}

// asksOn makes the LAN send requests until end is called. end returns the answers.
func (h *host) asksOn(addr, what string) (end func() string) {
	h.Helper()
	cmd := h.Command(context.WithoutCancel(h.Context()), "sh", "-ec", "exec "+lan+" "+h.dir+"/program load tcp "+addr)
	in, err := cmd.StdinPipe()
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.Fatalf("load %s: %v", what, err)
	}
	h.Cleanup(func() { _ = in.Close() })
	return func() string {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			_, _ = io.WriteString(&said, "\nfailed: "+err.Error())
		}
		return strings.TrimSpace(said.String())
	}
}

// reportsEndedSandboxes checks containers that end while neither daemon runs. Their ports are then
// not reachable, and `fairlead ports` and `fairlead doctor` report this.
func (h *host) reportsEndedSandboxes(vias []model.Via, pids []string) {
	h.Helper()
	for i := range vias {
		h.checkReach(fmt.Sprint(8080 + i))
		h.ended(8080+i, false, "yes")
	}
	if err := h.Signal(syscall.SIGKILL); err != nil {
		h.Fatal(err)
	}
	h.sh("killed " + strings.Join(pids, " "))
	for i := range vias {
		h.checkReach(fmt.Sprint(8080 + i))
		h.ended(8080+i, true, "no")
	}
	out, err := h.Command(h.Context(), h.dir+"/fairlead", "doctor").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "problem  ended-sandbox: ") {
		h.Errorf("fairlead doctor: %v\n%s", err, out)
	}
	h.sh("mv /var/lib/fairlead /var/lib/elsewhere") // a --state-dir that commands do not read
	for i := range vias {
		h.ended(8080+i, false, "maybe")
	}
	h.sh("mv /var/lib/elsewhere /var/lib/fairlead")
}

// ended fails the test unless `fairlead ports` reports for a port whether its sandbox has ended,
// and whether the LAN reaches it.
func (h *host) ended(port int, want bool, lan string) {
	h.Helper()
	var ready struct {
		Ports []struct {
			Ended bool
			Reach map[string]string
		}
	}
	text := h.sh(fmt.Sprintf("%s/fairlead ports -o json %d", h.dir, port))
	if err := json.Unmarshal([]byte(text), &ready); err != nil || len(ready.Ports) == 0 {
		h.Fatalf("%v: %s", err, text)
	}
	for _, p := range ready.Ports { // one per address family if their sandbox is unknown
		if p.Ended != want || p.Reach["lan"] != lan {
			h.Errorf("ended: %t, want %t; reachable from the LAN: %s, want %s\n%s", p.Ended, want, p.Reach["lan"], lan,
				text)
		}
	}
}

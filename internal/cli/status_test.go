package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/cli/command"

	"github.com/spf13/cobra"
)

// TestExitStatusAndTextAgree runs every command without a daemon, without root, on an empty
// host and on a full one, with a table and with JSON as its output. The exit status must be
// the one in statuses, and the text must not contradict it.
func TestExitStatusAndTextAgree(t *testing.T) {
	full, empty := hostileHost(t), emptyHost(t)
	none := "/proc/fairlead.sock" // nothing can listen there
	host := func(name, role, socket string, enter []string) surroundings {
		return newSurroundings(t, name, role, socket, enter, "DOCKER_HOST=unix:///proc/none", "EDITOR=true")
	}
	all := []surroundings{
		host("no daemon", commandRole, none, empty), host("no root", unprivilegedRole, none, empty),
		host("empty", commandRole, serveHostileDaemon(t, hostileDaemon{empty: true}), empty),
		host("full", commandRole, serveHostileDaemon(t, hostileDaemon{}), full),
	}
	lines := commandLines(hostileFiles(t))
	root := newRoot(&command.App{})
	root.InitDefaultHelpCmd()
	run := func(in surroundings, path, args []string, format string) ran { // some commands write files
		return in.run(t, slices.Concat(path, []string{"-o", format}, inOwnDir(args, t.TempDir())))
	}
	var paths [][]string
	leaves(root, nil, func(path []string, _ *cobra.Command) { paths = append(paths, path) })
	each(paths, func(path []string) {
		name := strings.Join(path, " ")
		var codes []string
		for _, in := range all {
			r := run(in, path, lines[name][0], "table")
			codes = append(codes, fmt.Sprint(r.code))
			in.check(t, name, r)
			if r.code == command.ExitOK || r.out != "" {
				in.checkJSON(t, name, r, run(in, path, lines[name][0], "json"))
			}
		}
		if got := strings.Join(codes, " "); !slices.Contains(statuses[got], name) {
			t.Errorf("fairlead %s ends with %s, which differs from statuses", name, got)
		}
	})
}

// slots is how many calls of each run at the same time.
const slots = 4

// each calls fn for each element, a few at a time.
func each[T any](elements []T, fn func(T)) {
	var all sync.WaitGroup
	free := make(chan struct{}, slots)
	for _, e := range elements {
		free <- struct{}{}
		all.Go(func() { fn(e); <-free })
	}
	all.Wait()
}

// emptyHost returns nsenter's arguments that enter a host without links and names.
func emptyHost(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const script = "mount --make-rprivate /; mkdir -p /run/netns; mount -t tmpfs none /run/netns; ip link set lo up; exec \"$@\""
	host := startHostileProcess(t, exec.Command("unshare", "--net", "--mount", "sh", "-euc", script, "sh", self))
	at := fmt.Sprintf("/proc/%d/ns/", host.Process.Pid)
	return []string{"--net=" + at + "net", "--mount=" + at + "mnt", "--"}
}

// claims are texts that only a success may have, and denials those that it must not have.
var (
	claims  = regexp.MustCompile(`found no problem|nothing to do`)
	denials = regexp.MustCompile(`(?m)^fairlead: (not examined|.*(failed|cannot|could not|refused|root is needed))`)
)

// check compares the status of a command with its text.
func (s surroundings) check(t *testing.T, name string, r ran) {
	t.Helper()
	switch {
	case r.code == command.ExitOK && denials.MatchString(r.err) && !strings.Contains(r.out, "?"):
		t.Errorf("%s: fairlead %s succeeds, but prints\n%s", s.name, name, r.err)
	case r.code != command.ExitOK && claims.MatchString(r.out):
		t.Errorf("%s: fairlead %s ends with %d, but prints\n%s", s.name, name, r.code, r.out)
	case r.code != command.ExitOK && !slices.Contains(silent, name) && !strings.Contains("\n"+r.err, "\nfairlead: "):
		t.Errorf("%s: fairlead %s ends with %d, and does not say why:\n%s", s.name, name, r.code, r.err)
	case r.code == command.ExitUnexamined && !strings.Contains(r.err, "not examined: "):
		t.Errorf("%s: fairlead %s ends with %d, and does not say what it has not examined:\n%s", s.name, name, r.code, r.err)
	}
}

// silent are the commands whose failures have no text: plan ends with 1 if there is something
// to do.
var silent = []string{"plan"}

// null is a list or an object that is missing.
var null = regexp.MustCompile(`(?m)^\s*("[^"]+": )?null,?$`)

// checkJSON compares the status of a command with that for a table, and checks the JSON.
func (s surroundings) checkJSON(t *testing.T, name string, table, r ran) {
	t.Helper()
	if r.code != table.code {
		t.Errorf("%s: fairlead %s ends with %d, with -o json with %d:\n%s%s", s.name, name, table.code, r.code, table.err, r.err)
	}
	if slices.Contains(texts, name) || r.out == "" {
		return
	}
	for d := json.NewDecoder(strings.NewReader(r.out)); d.More(); {
		var v any
		if err := d.Decode(&v); err != nil {
			t.Errorf("%s: fairlead %s -o json: %v in\n%s", s.name, name, err, r.out)
			return
		}
	}
	if line := null.FindString(r.out); line != "" {
		t.Errorf("%s: fairlead %s -o json prints null: %s", s.name, name, line)
	}
}

// texts are the commands that print a text in every format.
var texts = []string{"completion bash", "completion fish", "completion powershell", "completion zsh", "help",
	"docs man"}

// statuses are the commands by their exit statuses without a daemon, without root, on an
// empty host and on a full one.
var statuses = map[string][]string{
	"2 2 2 2": {"apply", "daemon", "dashboard", "destroy", "gateway traefik", "lab agent", "lab run", "plan", "run"},
	"1 2 0 0": {"attach", "cluster accept", "cluster address add", "cluster address claim",
		"cluster address ls", "cluster address move", "cluster address rm", "cluster bgp add",
		"cluster bgp ls", "cluster bgp rm", "cluster drain", "cluster etcd", "cluster init", "cluster join",
		"cluster leave", "cluster readdress", "cluster rm", "cluster takeover", "cluster token create",
		"cluster token ls", "cluster token rm", "detach", "events", "get", "ls", "network create",
		"network ls", "network rm", "publish", "service add", "service drain", "service enable", "service ls",
		"service rm", "service show", "service watch", "stats", "unpublish"},
	"0 2 0 0": {"bugreport", "choose", "docs man", "lab compare", "lab record", "lab report", "service import",
		"uninstall"},
	"1 2 1 1": {"cluster status", "lab history", "restore"},
	"0 0 0 0": {"completion bash", "completion fish", "completion powershell", "completion zsh", "help",
		"lab list", "paths", "schema", "version"},
	"0 3 0 1": {"doctor"},
	"1 2 1 0": {"edit", "exec", "explain", "inspect"},
	"1 1 1 1": {"gateway certificates", "gateway check", "gateway middlewares", "gateway routers",
		"gateway services"},
	"1 2 0 1": {"network check"},
	"0 3 0 0": {"ports"},
	"1 2 0 2": {"service set"},
}

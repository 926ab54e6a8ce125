package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/cli/command"
	"fairlead/internal/escape"
	"fairlead/internal/explain/doctor"

	"github.com/spf13/cobra"
)

// commandLines returns the arguments with which each command is tested, in
// addition to a hostile one. A command without an entry fails the test.
func commandLines(files string) map[string][][]string {
	in := func(name string) string { return filepath.Join(files, name) }
	declared := [][]string{{"-f", in("keys.yaml")}, {"-f", in("values.yaml")}, {"-f", in("broken.yaml")},
		{"-f", in("good.yaml")}}
	return map[string][][]string{
		"apply": declared, "plan": declared, "destroy": declared, "get": {{}}, "schema": {{}},
		"edit":   {{}, {"network", hostileName}, {"attachment", hostileName}, {"service", hostileName}},
		"attach": {{"web", "netns:web"}, {"web", "netns:web", "--dry-run"}}, "detach": {{"web"}, {"web", "--dry-run"}},
		"publish":   {{"web", "8080:80"}, {"web", "8080:80", "--dry-run"}},
		"unpublish": {{"web", "8080/tcp"}, {"web", "8080/tcp", "--dry-run"}},
		"choose":    {{}, {"--explain"}, {"--promise", hostileName}}, "completion bash": {{}}, "completion fish": {{}},
		"completion powershell": {{}}, "completion zsh": {{}},
		"cluster accept": {{}}, "cluster address ls": {{}}, "cluster readdress": {{"192.0.2.33"}},
		"cluster takeover": {{"--force"}, {"--force", "--address", "192.0.2.33"}},
		"cluster address add": {{"192.0.2.10/24"}, {"192.0.2.10/24", "--candidate", hostileName},
			{"192.0.2.10/24", "--link", hostileName}},
		"cluster address move":  {{"192.0.2.10"}, {"192.0.2.10", hostileName}},
		"cluster address rm":    {{"192.0.2.10"}, {"192.0.2.10", "--force"}},
		"cluster address claim": {{"192.0.2.10"}, {"192.0.2.10", "--force"}},
		"cluster drain":         {{"host2"}, {"host2", "--undo"}},
		"cluster bgp add": {{"192.0.2.1", "--as", "1", "--local-as", "2"},
			{hostileName, "--as", "1", "--local-as", "2", "--node", hostileName}},
		"cluster etcd":   {{"--etcd", "http://192.0.2.7:2379"}, {"--etcd", hostileName, "--etcd-user", hostileName}},
		"cluster bgp ls": {{}}, "cluster bgp rm": {{"192.0.2.1"}, {hostileName}},
		"cluster init": {{"--etcd", "http://192.0.2.7:2379"}, {"--etcd", hostileName, "--etcd-ca", hostileName},
			{"--etcd", "x", "--address", hostileName}},
		"cluster join": {{"fljoin1.a"}, {hostileName, "--address", hostileName}}, "cluster leave": {{}, {"--force"}},
		"cluster rm":     {{"host2"}},
		"cluster status": {{}}, "cluster token create": {{}}, "cluster token ls": {{}},
		"cluster token rm": {{"3f2a9c0d1e4b"}}, "daemon": {{"--metrics", hostileName}, {"--xdp", hostileName}},
		"restore": {{"--dry-run", "--state-dir", hostileName, "--run-dir", hostileName},
			{"--dry-run", "--state-dir", in("state"), "--run-dir", in("run")}},
		"uninstall": {{"--dry-run", "--state-dir", hostileName, "--run-dir", hostileName},
			{"--dry-run", "--state-dir", in("state"), "--run-dir", in("run")}},
		"dashboard": {{"--listen", hostileName}, {"--add-token", hostileName, "--tokens", ownDir + "tokens"}},
		"docs man":  {{in("man")}}, "doctor": {{}}, "bugreport": {{"--file", ownDir + "report.tar.gz"}},
		"events": {{}, {"-f"}},
		"exec":   {{"netns:web", "--", "true"}, {"netns:web", "--", hostileName}}, "help": {{}},
		"explain": {{"192.0.2.7", "to", ":8080"}, {"192.0.2.7", "to", "10.0.0.2:81"}, {"host", "to", "10.0.0.2:80"},
			{"netns:web", "to", "192.0.2.10:9000"}, {"https://" + hostileName + "/"}, {"https://example.org/"},
			{"host", "to", "https://example.org/"}, {"http://x/", "--gateway", hostileName}},
		"gateway check": {{in("gateway.yml")}, {in("gateway.yml"), "--url", "http://x/"}, {in("broken.yaml")},
			{in("gateway.yml"), "--url", hostileName}},
		"gateway certificates": {{}, {"--api", hostileName}},
		"gateway routers":      {{}, {"--api", hostileName}}, "gateway services": {{}, {"--api", hostileName}},
		"gateway middlewares": {{}, {"--api", hostileName}},
		"gateway traefik":     {{"--", "--" + hostileName}, {"--", "--entrypoints.web.address=" + hostileName}},
		"inspect":             {{"netns:web"}}, "lab compare": {{in("report.json"), in("report.json")},
			{in("garbage.json"), in("garbage.json")}}, "lab list": {{}},
		"lab agent": {{"--expose", hostileName}, {"--expose", "lo", "--listen", hostileName}, {"--ssh"}},
		"lab history": {{"--file", in("history.jsonl")}, {"--file", in("garbage.json")},
			{hostileName, "--file", in("history.jsonl")}},
		"lab record": {{in("report.json"), "--file", in("recorded.jsonl")},
			{in("garbage.json"), "--file", in("recorded.jsonl")}},
		"lab report": {{in("report.json")}, {in("garbage.json")}},
		"lab run": {{"quick", "--fail-if", hostileName}, {"quick", "--baseline", hostileName},
			{"quick", "--server", hostileName}, {"quick", "--server", "192.0.2.1=" + hostileName},
			{"quick", "--ssh", hostileName}, {"quick", "--client", "ssh://" + hostileName}},
		"ls": {{}}, "network check": {{"web"}},
		"network create": {{"web"}, {"web", "--driver", hostileName}, {"web", "--driver", "bridge", "--dry-run"},
			{"web", "--cluster", "--block-size", hostileName}},
		"network ls": {{}}, "network rm": {{"web"}}, "paths": {{}}, "ports": {{}, {"9000"}},
		"run": {{"-p", hostileName, "--", "true"}, {"-p", "8080:80", "--", hostileName}},
		"service add": {{"web", "192.0.2.1:80"}, {hostileName, "192.0.2.1:80", "--dry-run"},
			{"web", "192.0.2.1:80", "--interface", hostileName},
			{"web", "192.0.2.1:80", "--cluster", "--ingress", hostileName}},
		"service drain": {{"web", "10.0.0.2"}}, "service enable": {{"web", "10.0.0.2"}},
		"service import": {{"keepalived", in("keepalived.conf")}, {"ipvsadm", in("keepalived.conf")}},
		"service ls":     {{}},
		"service rm":     {{"web"}, {"web", "--dry-run"}, {"web", "10.0.0.2"}},
		"service set":    {{"web", "--scheduler", "rr"}, {"web", "--scheduler", "rr", "--dry-run"}},
		"service show":   {{"web"}}, "service watch": {{}}, "stats": {{}}, "version": {{}},
	}
}

// ownDir begins the name of a file in a folder of the command's own. nsenter changes the current folder.
const ownDir = "OWN/"

// inOwnDir returns arguments with the folder in place of ownDir.
func inOwnDir(args []string, dir string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		if name, own := strings.CutPrefix(arg, ownDir); own {
			args[i] = filepath.Join(dir, name)
		}
	}
	return args
}

// leaves calls each for every command of the tree that has no subcommands.
func leaves(c *cobra.Command, path []string, each func(path []string, c *cobra.Command)) {
	for _, sub := range c.Commands() {
		at := append(slices.Clone(path), sub.Name())
		if sub.HasSubCommands() {
			leaves(sub, at, each)
		} else {
			each(at, sub)
		}
	}
}

// TestHostileNamesAreEscaped runs every command on a host where all names are
// hostile. No output may contain a raw name.
func TestHostileNamesAreEscaped(t *testing.T) {
	enter := hostileHost(t)
	host := func(name string, l hostileDaemon) surroundings {
		return newSurroundings(t, name, commandRole, serveHostileDaemon(t, l), enter, "EDITOR=cat")
	}
	hosts := []surroundings{host("answers", hostileDaemon{}), host("refuses", hostileDaemon{refuses: true})}
	known := commandLines(hostileFiles(t))
	root := newRoot(&command.App{})
	complete(root)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	var all [][]func() // the lines of one command write the same files
	leaves(root, nil, func(path []string, c *cobra.Command) {
		lines, ok := known[strings.Join(path, " ")]
		if !ok {
			t.Errorf("fairlead %s: add arguments for it to commandLines", strings.Join(path, " "))
			return
		}
		var checks []func()
		for _, args := range append(slices.Clone(lines), []string{hostileName}, []string{"--" + hostileName}) {
			for i, host := range hosts {
				if i > 0 && c.Flags().Lookup("socket") == nil {
					break
				}
				for _, format := range []string{"table", "json"} {
					if format == "json" && len(args) > 0 && strings.Contains(args[len(args)-1], hostileName) {
						break // the output is the same
					}
					line := slices.Concat(path, []string{"-o", format}, args)
					checks = append(checks, func() { checkOutput(t, host, line) })
				}
			}
		}
		if c.ValidArgsFunction != nil {
			line := slices.Concat([]string{"__complete"}, path, []string{""})
			checks = append(checks, func() { checkOutput(t, hosts[0], line) })
		}
		all = append(all, checks)
	})
	each(all, func(checks []func()) {
		for _, check := range checks {
			check()
		}
	})
}

// checkOutput runs a command and checks every character that it prints.
func checkOutput(t *testing.T, host surroundings, args []string) {
	t.Helper()
	r := host.run(t, inOwnDir(args, filepath.Dir(host.socket))) // many fail, as they should
	for _, text := range []string{r.out, r.err} {
		if i := strings.IndexFunc(text, func(r rune) bool {
			return escape.Hidden(r) && r != '\n' &&
				r != '\t'
		}); i >= 0 {
			t.Errorf("fairlead %q: %q is raw in\n%q", args, text[i:i+1], text)
		}
		if strings.Contains("\n"+text, "\n"+forged) || strings.Contains(text, "panic: ") {
			t.Errorf("fairlead %q: a name begins a line in\n%s", args, text)
		}
	}
	if text := r.out; json.Valid([]byte(text)) && strings.Contains(text, forged) &&
		!strings.Contains(text, `\n`+forged) {
		t.Errorf("fairlead %q: the JSON does not contain the original name:\n%s", args, text)
	}
}

// TestDoctorFixesAreSafeInAShell runs the fixes that `fairlead doctor` prints in a
// shell. The shell must not run any name in them as a command.
func TestDoctorFixesAreSafeInAShell(t *testing.T) {
	enter := hostileHost(t)
	host := newSurroundings(t, "no daemon", commandRole, filepath.Join(t.TempDir(), "none"), enter)
	out := host.run(t, []string{"doctor", "-o", "json"}).out // there are problems
	var d struct{ Findings []doctor.Finding }
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	hostile := 0
	for _, f := range d.Findings {
		if strings.Contains(f.Fix, "$(>canary)") {
			hostile++
		}
		paste := exec.Command("/bin/sh", "-c", f.Fix)
		paste.Dir, paste.Env = t.TempDir(), []string{"PATH=/nowhere"}
		_ = paste.Run() // no command is found
		if _, err := os.Stat(filepath.Join(paste.Dir, "canary")); err == nil {
			t.Errorf("the fix runs a name as a command: %s", f.Fix)
		}
	}
	if hostile < 2 {
		t.Errorf("%d fixes name the link with the hostile name, want at least 2: %s", hostile, out)
	}
}

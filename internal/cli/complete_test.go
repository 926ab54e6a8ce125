package cli

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/cli/command"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// takesFiles are the commands whose first argument is a file or directory, and flags whose
// value is one.
var takesFiles = []string{"docs man", "gateway check", "gateway traefik", "lab report", "lab compare", "lab record",
	"run",
	"--socket", "--docker-socket", "--file", "--history-file", "--json", "--html", "--bench", "--iperf3", "--key-file",
	"--etcd-ca", "--etcd-cert", "--etcd-key", "--etcd-password-file", "--token-file", "--run-dir", "--state-dir",
	"--docker-dir"}

// completed returns what a shell offers after the words, and the directive.
func completed(t *testing.T, words ...string) ([]string, cobra.ShellCompDirective) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot(&command.App{Out: command.NewPrinter(&out), Err: command.NewPrinter(os.Stderr), Log: os.Stderr})
	complete(root)
	root.SetArgs(append([]string{"__completeNoDesc"}, words...))
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	if err := root.Execute(); err != nil {
		t.Fatalf("complete %q: %v", words, err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	n, err := strconv.Atoi(strings.TrimPrefix(lines[len(lines)-1], ":"))
	if err != nil {
		t.Fatalf("complete %q: %s", words, out.String())
	}
	return lines[:len(lines)-1], cobra.ShellCompDirective(n)
}

// offersFiles reports whether a shell offers names of files or directories.
func offersFiles(d cobra.ShellCompDirective) bool {
	return d&cobra.ShellCompDirectiveNoFileComp == 0 && d&cobra.ShellCompDirectiveError == 0
}

// TestFilesAreOfferedWhereFilesAreTaken: no command and no flag offers names of files
// unless it takes files.
func TestFilesAreOfferedWhereFilesAreTaken(t *testing.T) {
	t.Setenv(command.SocketVariable, t.TempDir()+"/none")
	root := newRoot(&command.App{})
	leaves(root, nil, func(path []string, c *cobra.Command) {
		_, directive := completed(t, append(slices.Clone(path), "")...)
		if name := strings.Join(path, " "); offersFiles(directive) != slices.Contains(takesFiles, name) {
			t.Errorf("fairlead %s: offers files: %t", name, offersFiles(directive))
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal != "" || f.Hidden {
				return // it takes no value in the next word
			}
			_, directive := completed(t, append(slices.Clone(path), "--"+f.Name, "")...)
			if offersFiles(directive) != slices.Contains(takesFiles, "--"+f.Name) {
				t.Errorf("fairlead %s --%s: offers files: %t", strings.Join(path, " "), f.Name, offersFiles(directive))
			}
		})
	})
}

// TestNamesAreOffered checks the names that a shell offers for values that are known.
func TestNamesAreOffered(t *testing.T) {
	for line, want := range map[string]string{
		"lab run _":                   "quick ebpf",
		"lab run quick _":             "ebpf nat",
		"lab history _":               "quick",
		"lab run --workload _":        "tcp-bulk tcp-rr",
		"lab run --workload tcp-rr,_": "tcp-rr,tcp-bulk",
		"lab run --client _":          "remote local peer",
		"lab run --baseline _":        "host docker-proxy",
		"lab run --with _":            "iperf3",
		"lab run --family _":          "4 6",
		"paths -o _":                  "table json markdown",
		"ls -o _":                     "table json",
		"service import _":            "ipvsadm keepalived",
	} {
		words := strings.Fields(line)
		words[len(words)-1] = strings.TrimSuffix(words[len(words)-1], "_")
		got, directive := completed(t, words...)
		for _, name := range strings.Fields(want) {
			if !slices.Contains(got, name) || offersFiles(directive) {
				t.Errorf("%s: offers %q with directive %d, want %s", line, got, directive, name)
			}
		}
	}
}

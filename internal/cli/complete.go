package cli

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/cli/command"
	"fairlead/internal/cli/measure"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/tool"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// fileFlags and directoryFlags are the flags, of any command, whose values are files and
// directories.
var (
	fileFlags = []string{"socket", "docker-socket", "file", "history-file", "json", "html", "bench", "iperf3",
		"key-file", "etcd-ca", "etcd-cert", "etcd-key", "etcd-password-file", "token-file"}
	directoryFlags = []string{"run-dir", "state-dir", "docker-dir"}
)

// complete sets how a shell completes the arguments and flags of all commands. Only a shell that asks for completions
// needs that, and it takes a tenth of a short command's CPU time. Files are
// offered only where a command takes files.
func complete(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for path, fn := range argumentCompletions() {
		c, _, err := root.Find(strings.Fields(path))
		if err == nil {
			c.ValidArgsFunction = fn(c.ValidArgsFunction)
		}
	}
	completeFlags(root)
}

// completeFlags sets the completions of a command's flags, and of its subcommands'.
func completeFlags(c *cobra.Command) {
	var values map[string][]string
	if c.CommandPath() == "fairlead lab run" {
		values = labValues()
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		// An error means that the flag has a completion already.
		switch all := values[f.Name]; {
		case f.Name == "output":
			_ = c.RegisterFlagCompletionFunc(f.Name, command.CompleteOutput)
		case slices.Contains(directoryFlags, f.Name):
			_ = c.MarkFlagDirname(f.Name)
		case slices.Contains(fileFlags, f.Name) && f.Annotations[cobra.BashCompFilenameExt] == nil:
			_ = c.RegisterFlagCompletionFunc(f.Name, command.CompleteFiles)
		case strings.HasSuffix(f.Value.Type(), "Slice") && all != nil:
			_ = c.RegisterFlagCompletionFunc(f.Name, command.CompleteList(all))
		case all != nil:
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, sub := range c.Commands() {
		completeFlags(sub)
	}
}

// labValues are the values of the flags of `fairlead lab run`.
func labValues() map[string][]string {
	families := []string{fmt.Sprint(int(result.IPv4)), fmt.Sprint(int(result.IPv6))}
	return map[string][]string{"workload": measure.WorkloadNames(), "baseline": measure.PathNames(),
		"with": tool.Names(), "client": {"remote", "local", "peer"}, "family": families}
}

// argumentCompletions returns the completions of commands' arguments, each as a function of
// the one that the command already has.
func argumentCompletions() map[string]func(cobra.CompletionFunc) cobra.CompletionFunc {
	is := func(fn cobra.CompletionFunc) func(cobra.CompletionFunc) cobra.CompletionFunc {
		return func(cobra.CompletionFunc) cobra.CompletionFunc { return fn }
	}
	files, none := is(command.CompleteFiles), cobra.CompletionFunc(cobra.NoFileCompletions)
	return map[string]func(cobra.CompletionFunc) cobra.CompletionFunc{
		"docs man": files, "gateway check": files, "gateway traefik": files, "lab report": files, "lab compare": files,
		"lab record": files, "run": files,
		"service import": is(byPosition(cobra.FixedCompletions([]string{"ipvsadm", "keepalived"},
			cobra.ShellCompDirectiveNoFileComp), command.CompleteFiles)),
		"lab run": is(completePaths), "lab history": is(completePaths),
		"inspect": is(byPosition(command.CompleteSandboxes, none)),
		"explain": is(byPosition(command.CompleteSandboxes, none)),
		"exec":    is(byPosition(command.CompleteSandboxes, command.CompleteFiles)),
		"attach": func(networks cobra.CompletionFunc) cobra.CompletionFunc {
			return byPosition(networks, command.CompleteSandboxes, none)
		},
	}
}

// byPosition completes each argument with the function at its position, and the remaining
// ones with the last function.
func byPosition(all ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return all[min(len(args), len(all)-1)](c, args, typed)
	}
}

// completePaths completes the arguments [SUITE] [PATH…] of the laboratory's commands.
func completePaths(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names := slices.DeleteFunc(measure.PathNames(), func(name string) bool { return slices.Contains(args, name) })
	if len(args) == 0 {
		names = append(measure.SuiteNames(), names...)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

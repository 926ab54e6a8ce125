package command

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead/internal/frontend/admin"
	"fairlead/internal/promise"
	"fairlead/internal/sandbox"

	"github.com/spf13/cobra"
)

// CompleteAttachments completes the first argument with the attachments' names.
func (r *Remote) CompleteAttachments(c *cobra.Command, args []string, _ string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	var names []cobra.Completion
	if len(args) == 0 {
		all, err := admin.NewClient(r.Socket).Attachments(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, v := range all {
			names = append(names, v.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteNetworks completes the first argument with the networks' names.
func (r *Remote) CompleteNetworks(c *cobra.Command, args []string, _ string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	var names []cobra.Completion
	if len(args) == 0 {
		all, err := admin.NewClient(r.Socket).Networks(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, n := range all.Networks {
			names = append(names, n.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompletePromises completes the last name of a list of promises.
func CompletePromises(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	for _, q := range promise.Publish() {
		names = append(names, string(q))
	}
	return CompleteList(names)(c, args, typed)
}

// CompleteList returns a completion of the last name of a list, without the names that the
// list has already.
func CompleteList(all []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		done := typed[:strings.LastIndex(typed, ",")+1]
		var names []cobra.Completion
		for _, name := range all {
			if !slices.Contains(strings.Split(done, ","), name) {
				names = append(names, done+name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// CompleteOutput completes the formats of --output.
func CompleteOutput(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return formats(c), cobra.ShellCompDirectiveNoFileComp
}

// CompleteFiles completes names of files.
func CompleteFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// CompleteSandboxes completes the names of named namespaces and of running containers.
func CompleteSandboxes(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	find := sandbox.New()
	var names []cobra.Completion
	named, _ := os.ReadDir(find.NetnsDir) // without the directory there are none
	for _, n := range named {
		names = append(names, n.Name())
	}
	ctx, cancel := context.WithTimeout(c.Context(), engineTimeout)
	defer cancel()
	containers, _ := find.Containers(ctx) // without an engine there are none
	for _, one := range containers {
		names = append(names, one.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// engineTimeout limits how long a completion waits for container engines.
const engineTimeout = time.Second

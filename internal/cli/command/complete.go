package command

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/promise"
	"fairlead/internal/sandbox"

	"github.com/spf13/cobra"
)

// CompleteFirst completes the first argument with the names of objects that the daemon has.
func CompleteFirst[Object any](r *Remote, ask func(context.Context, *admin.Client) ([]Object, error),
	name func(Object) string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, err := ask(c.Context(), admin.NewClient(r.Socket))
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []cobra.Completion
		for _, o := range all {
			names = append(names, name(o))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteAttachments completes the first argument with the attachments' names.
func (r *Remote) CompleteAttachments() cobra.CompletionFunc {
	return CompleteFirst(r,
		func(ctx context.Context, c *admin.Client) ([]api.View, error) { return c.Attachments(ctx) },
		func(v api.View) string { return v.Name })
}

// CompleteNetworks completes the first argument with the networks' names.
func (r *Remote) CompleteNetworks() cobra.CompletionFunc {
	return CompleteFirst(r, func(ctx context.Context, c *admin.Client) ([]model.Network, error) {
		all, err := admin.ListNetworks.Do(ctx, c)
		return all.Networks, err
	}, func(n model.Network) string { return n.Name })
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

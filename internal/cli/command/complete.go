package command

import (
	"slices"
	"strings"

	"fairlead/internal/frontend/admin"
	"fairlead/internal/promise"

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

// CompletePromises completes the last name of a list, without the names that the
// list has already.
func CompletePromises(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	done := typed[:strings.LastIndex(typed, ",")+1]
	var names []cobra.Completion
	for _, q := range promise.Publish() {
		if !slices.Contains(strings.Split(done, ","), string(q)) {
			names = append(names, done+string(q))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

package declare

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"

	"github.com/spf13/cobra"
)

// NewEdit returns the command `fairlead edit`.
func NewEdit(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:   "edit [network|attachment|service NAME]",
		Short: "Edit what commands have created, in an editor",
		Long: "Open an editor with the networks, attachments, publishes and services that commands have\n" +
			"created, or with one of them, as a file for `fairlead apply`. When the editor ends, print what\n" +
			"changes, and change it in one step. If the file has a mistake, the editor opens again and shows\n" +
			"it. Without a change in the file, nothing happens.\n\n" +
			"The editor is $VISUAL, $EDITOR, or the first of editor, vi and nano. If an object has changed\n" +
			"since the editor opened, or if the host refuses the change, nothing changes and the file stays:\n" +
			"the error names it. Objects that files declare are changed there.",
		Example: "  fairlead edit\n  fairlead edit network web\n  EDITOR=nano fairlead edit service shop",
		Args:    editArguments,
		RunE: func(c *cobra.Command, args []string) error {
			s := &editSession{r: r}
			if len(args) > 0 {
				s.kind, s.name = args[0], args[1]
			}
			return s.run(c.Context())
		},
		ValidArgsFunction: completeEdit(r),
	}
	r.Flags(c)
	return c
}

// editKinds are the kinds of objects that can be edited alone.
var editKinds = []string{"network", "attachment", "service"}

func editArguments(c *cobra.Command, args []string) error {
	if err := command.Arguments(cobra.MaximumNArgs(2))(c, args); err != nil {
		return err
	}
	switch {
	case len(args) > 0 && !slices.Contains(editKinds, args[0]):
		return command.Usage(fmt.Errorf("kind %q: want one of %s", args[0], strings.Join(editKinds, ", ")))
	case len(args) == 1:
		return command.Usage(fmt.Errorf("edit %s: the name is missing: want %s", args[0], c.UseLine()))
	}
	return nil
}

func completeEdit(r *command.Remote) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return editKinds, cobra.ShellCompDirectiveNoFileComp
		}
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		state, err := admin.ReadEditable.Do(c.Context(), admin.NewClient(r.Socket))
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return namesOf(state.Spec, args[0]), cobra.ShellCompDirectiveNoFileComp
	}
}

// namesOf returns the names of the objects of a kind.
func namesOf(s api.Spec, kind string) (names []string) {
	switch kind {
	case "network":
		for _, n := range s.Networks {
			names = append(names, n.Name)
		}
	case "attachment":
		for _, a := range s.Attachments {
			names = append(names, a.Name)
		}
	case "service":
		for _, v := range s.Services {
			names = append(names, v.Name)
		}
	}
	return names
}

// only returns the object of a kind with the name.
func only(s api.Spec, kind, name string) (one api.Spec) {
	if i := slices.Index(namesOf(s, kind), name); i >= 0 {
		switch kind {
		case "network":
			one.Networks = []model.Network{s.Networks[i]}
		case "attachment":
			one.Attachments = []api.Declared{s.Attachments[i]}
		case "service":
			one.Services = []model.VirtualService{s.Services[i]}
		}
	}
	return one
}

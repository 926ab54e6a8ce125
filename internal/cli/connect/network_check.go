package connect

import (
	"fmt"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newNetworkCheck(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:   "check NAME",
		Short: "Check an overlay's paths to its other hosts",
		Long: "Send datagrams of all sizes up to the network's MTU, and TCP streams, through an overlay to\n" +
			"each of its other hosts. Report what is lost or corrupted in each direction, and what to\n" +
			"change. On both hosts a daemon must run and the network must be up and list the ranges of\n" +
			"its peers.",
		Example: "  fairlead network check net",
		Args:    command.Arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return r.Read(c.Context(), func(client *admin.Client) error {
				found, err := admin.CheckNetwork.Do(c.Context(), client, admin.NetworkName{Name: args[0]})
				if err != nil {
					return err
				}
				return printPeerPaths(r, found.Paths)
			}, nil)
		},
		ValidArgsFunction: r.CompleteNetworks(),
	}
	r.Flags(c)
	return c
}

// printPeerPaths prints one line per peer path that works, and the problems of
// the others. It returns an error if a path has problems.
func printPeerPaths(r *command.Remote, paths []api.PeerPathView) error {
	bad := 0
	for _, w := range paths {
		if len(w.Problems) > 0 {
			bad++
		}
	}
	if r.Output == "json" {
		if err := r.JSON(admin.PeerPaths{Paths: paths}); err != nil {
			return err
		}
	} else {
		for _, w := range paths {
			problems := w.Problems
			if len(problems) == 0 {
				problems = []string{"ok"}
			}
			first := fmt.Sprintf("%s at %s: %s", w.Peer, w.Remote, problems[0])
			if err := r.Out.Lines(append([]string{first}, problems[1:]...)...); err != nil {
				return err
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d paths have problems", bad, len(paths))
	}
	return nil
}

package cli

import (
	"fmt"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newNetworkCheck(a *app) *cobra.Command {
	r := &remote{app: a}
	c := &cobra.Command{
		Use:   "check NAME",
		Short: "Check the ways of an overlay to its other hosts",
		Long: "Speak to the other hosts of an overlay, through it: datagrams of all sizes up to the\n" +
			"network's MTU, and streams of TCP. Say what gets lost or spoilt on the way there or\n" +
			"back, and what to change. The network must be up on both hosts, with a daemon, and\n" +
			"list the ranges of its peers.",
		Example: "  fairlead network check net",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return r.read(c.Context(), func(client *admin.Client) error {
				paths, err := client.CheckNetwork(c.Context(), args[0])
				if err != nil {
					return err
				}
				return r.printPeerPaths(paths)
			}, nil)
		},
		ValidArgsFunction: r.completeNetworks,
	}
	r.flags(c)
	return c
}

// printPeerPaths prints a line for each way that is well, and what is wrong with the
// others, which is an error.
func (r *remote) printPeerPaths(paths []daemon.PeerPathView) error {
	bad := 0
	for _, w := range paths {
		if len(w.Problems) > 0 {
			bad++
		}
	}
	if r.output == "json" {
		if err := r.json(admin.PeerPaths{Paths: paths}); err != nil {
			return err
		}
	} else {
		for _, w := range paths {
			problems := w.Problems
			if len(problems) == 0 {
				problems = []string{"well"}
			}
			first := fmt.Sprintf("%s at %s: %s", w.Peer, w.Remote, problems[0])
			if err := r.out.lines(append([]string{first}, problems[1:]...)...); err != nil {
				return err
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d ways are not well", bad, len(paths))
	}
	return nil
}

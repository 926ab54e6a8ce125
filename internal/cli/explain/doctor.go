package explain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/cli/command"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/kernel"
	"fairlead/internal/plan"

	"github.com/spf13/cobra"
)

// diagnosis is the output of `fairlead doctor`.
type diagnosis struct {
	Findings []doctor.Finding `json:"findings"`
	// Unseen lists what could not be read, and why.
	Unseen []string `json:"unseen,omitempty"`
}

// NewDoctor returns the command `fairlead doctor`.
func NewDoctor(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Show problems and slow paths of this host, and how to fix them",
		Long: "Check this host's network for what breaks, endangers or slows containers, whichever program\n" +
			"created them. Each finding shows what was found, why it matters, its cost if the laboratory\n" +
			"has measured it, and the fix. Nothing is changed. The check sends ARP and neighbour requests\n" +
			"on the host's links, to find other hosts that use the addresses of this host, of its virtual\n" +
			"services or of the default gateway.\n\n" +
			"A problem breaks or endangers something, a warning can do so, and a note costs something.\n" +
			"The exit code is 1 if there is a problem. It is 3 if there is none in what was examined, but\n" +
			"something could not be examined, e.g. without root. It is 0 if everything was examined and\n" +
			"there are only warnings or notes, or nothing.",
		Example: "  fairlead doctor\n  fairlead doctor -o json",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := examiner(r).Host(c.Context())
			if err != nil {
				return err
			}
			if len(h.Costlier()) > 0 {
				facts, err := kernel.Probe(plan.FeatureEBPF, plan.FeatureCgroupHooks)
				if err != nil {
					return err
				}
				h.Kernel = &facts
			}
			askNeighbours(c.Context(), &h)
			d := diagnosis{append([]doctor.Finding{}, doctor.Examine(h)...), h.Unseen}
			if err := printDiagnosis(r, d); err != nil {
				return err
			}
			problems := 0
			for _, f := range d.Findings {
				if f.Severity == doctor.Problem {
					problems++
				}
			}
			switch {
			case problems > 0:
				return fmt.Errorf("problems on this host: %d", problems)
			case len(d.Unseen) > 0:
				return command.Exit{Code: command.ExitUnexamined, Why: errors.New(
					"whether this host has problems is unknown: not everything could be examined")}
			}
			return nil
		},
	}
	r.Flags(c)
	return c
}

// neighbourTimeout is how long to wait for the replies of a LAN's hosts.
const neighbourTimeout = 600 * time.Millisecond

// askNeighbours asks the hosts on this host's links which of them answer for
// addresses of this host, of its virtual services and of the default gateways.
func askNeighbours(ctx context.Context, h *doctor.Host) {
	of := h.Asked()
	if len(of) == 0 {
		return
	}
	host, err := kernel.Open("", kernel.Options{})
	if err == nil {
		h.Claims, err = host.Inspect().Claims(ctx, of, neighbourTimeout)
		err = errors.Join(err, host.Close())
	}
	if err != nil {
		h.Unseen = append(h.Unseen, "whether other hosts answer for the same addresses: "+err.Error())
	}
}

func printDiagnosis(r *command.Remote, d diagnosis) error {
	if r.Output == "json" {
		return r.JSON(d)
	}
	for _, f := range d.Findings {
		lines := []string{fmt.Sprintf("%s  %s: %s", f.Severity, f.Check, f.Seen), "  why   " + f.Why}
		if f.Cost != nil {
			lines = append(lines, fmt.Sprintf("  cost  %s (measured by: %s)", f.Cost.Text, f.Cost.Command))
		}
		if err := r.Out.Lines(append(lines, "  fix   "+f.Fix, "")...); err != nil {
			return err
		}
	}
	if len(d.Findings) == 0 {
		line := fmt.Sprintf("%d checks found no problem.", len(doctor.Checks()))
		if len(d.Unseen) > 0 {
			line = "There is no problem in what could be examined."
		}
		if err := r.Out.Line("%s", line); err != nil {
			return err
		}
	}
	printUnseen(r.App, d.Unseen)
	return nil
}

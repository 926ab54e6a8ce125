package cli

import (
	"context"
	"errors"
	"time"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newServiceRemove(a *app) *cobra.Command {
	r := &remote{app: a}
	now := false
	c := &cobra.Command{
		Use:   "rm NAME [REAL…]",
		Short: "Take virtual services away, or real servers out of one",
		Long: "Take a virtual service away, at once and with its connections; or take real servers out\n" +
			"of it. These get no new connections and go when those that they have have ended, or when\n" +
			"the service's drain time is over; with --now, at once.",
		Example: "  fairlead service rm web\n  fairlead service rm web 10.0.0.2:8080\n  fairlead service rm web 10.0.0.2:8080 --now",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return r.call(c.Context(), func(client *admin.Client) error {
				if len(args) == 1 {
					result, err := client.RemoveService(c.Context(), args[0], r.dryRun)
					if err != nil {
						return err
					}
					return r.printChanged(result)
				}
				if r.dryRun {
					return usage(errors.New("--dry-run is for whole services: a real server drains before it goes"))
				}
				return r.changeReals(c.Context(), client, args, daemon.RealRequest{Do: daemon.RemoveReal, Now: now})
			})
		},
		ValidArgsFunction: r.completeReals,
	}
	r.changes(c)
	c.Flags().BoolVar(&now, "now", false, "end the connections of the real server")
	return c
}

func newServiceDrain(a *app) *cobra.Command {
	r := &remote{app: a}
	var request daemon.RealRequest
	wait := false
	c := &cobra.Command{
		Use:   "drain NAME REAL…",
		Short: "Give real servers no new connections",
		Long: "Give real servers no new connections, until `fairlead service enable`. They keep those\n" +
			"that they have until these end, or until a deadline: the service's drain time, or\n" +
			"--deadline. Then they are drained, and can be shut down without anybody noticing. A real\n" +
			"server is named by its address, or by the attachment or container that it is.\n" +
			"A container that is being stopped drains by itself.",
		Example: "  fairlead service drain web 10.0.0.2:8080\n  fairlead service drain web web-2 --deadline 5m --wait",
		Args:    arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			if request.Now && c.Flags().Changed("deadline") {
				return usage(errors.New("--now is a deadline already: leave the one or the other out"))
			}
			return r.call(c.Context(), func(client *admin.Client) error {
				request.Do = daemon.DrainReal
				if err := r.changeReals(c.Context(), client, args, request); err != nil || !wait {
					return err
				}
				return r.awaitDrains(c.Context(), client, args[0])
			})
		},
		ValidArgsFunction: r.completeReals,
	}
	r.flags(c)
	c.Flags().DurationVar(&request.Deadline, "deadline", 0, "end the connections that are left after so long")
	c.Flags().BoolVar(&request.Now, "now", false, "end the connections at once")
	c.Flags().BoolVar(&wait, "wait", false, "wait until no drain of the service is under way")
	return c
}

func newServiceEnable(a *app) *cobra.Command {
	r := &remote{app: a}
	c := &cobra.Command{
		Use:   "enable NAME REAL…",
		Short: "Give real servers new connections again",
		Long: "Give real servers new connections again that were drained, or that were taken out because\n" +
			"clients' connections to them had failed (--passive). What checks find down stays down.",
		Example: "  fairlead service enable web 10.0.0.2:8080",
		Args:    arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			return r.call(c.Context(), func(client *admin.Client) error {
				return r.changeReals(c.Context(), client, args, daemon.RealRequest{Do: daemon.EnableReal})
			})
		},
		ValidArgsFunction: r.completeReals,
	}
	r.flags(c)
	return c
}

// changeReals asks for the same of each real server, and shows the service as
// it is then.
func (r *remote) changeReals(ctx context.Context, client *admin.Client, args []string, request daemon.RealRequest) error {
	var errs []error
	var last daemon.Result
	for _, real := range args[1:] {
		request.Service, request.Real = args[0], real
		result, err := client.ChangeReal(ctx, request)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		last.Notes = append(last.Notes, result.Notes...)
		last.Services, last.Changed = result.Services, last.Changed || result.Changed
	}
	if len(errs) < len(args)-1 {
		errs = append(errs, r.printChanged(last))
	}
	return errors.Join(errs...)
}

// pollEvery is how often is looked whether drains have ended.
const pollEvery = 250 * time.Millisecond

// awaitDrains waits until no drain of a service is under way.
func (r *remote) awaitDrains(ctx context.Context, client *admin.Client, name string) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		v, err := client.Service(ctx, name)
		if err != nil {
			return err
		}
		under := 0
		for _, s := range v.Servers {
			if s.State == daemon.RealDraining {
				under++
			}
		}
		if under == 0 {
			r.err.note("fairlead: all of service %s is drained that was to be", name)
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// completeReals completes the first argument by the services there are, and the
// others by the real servers of that one.
func (r *remote) completeReals(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return r.completeServices(c, args, typed)
	}
	v, err := admin.NewClient(r.socket).Service(c.Context(), args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, s := range v.Servers {
		names = append(names, realText(s))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

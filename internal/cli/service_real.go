package cli

import (
	"context"
	"errors"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newServiceRemove(a *app) *cobra.Command {
	r := &remote{app: a}
	now := false
	c := &cobra.Command{
		Use:   "rm NAME [REAL…]",
		Short: "Remove a virtual service, or real servers from it",
		Long: "Remove a virtual service at once and end its connections; or remove real servers from it. A\n" +
			"removed real server gets no new connections. It leaves when its connections have ended, or\n" +
			"when the service's drain time is over. With --now it leaves at once.",
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
					return usage(errors.New("--dry-run works for whole services only: leave it out to remove a real " +
						"server"))
				}
				return r.changeReals(c.Context(), client, args, api.RealRequest{Do: api.RemoveReal, Now: now})
			})
		},
		ValidArgsFunction: r.completeReals,
	}
	r.changes(c)
	c.Flags().BoolVar(&now, "now", false, "remove the real server at once, and end its connections")
	return c
}

func newServiceDrain(a *app) *cobra.Command {
	r := &remote{app: a}
	var request api.RealRequest
	wait := false
	c := &cobra.Command{
		Use:   "drain NAME REAL…",
		Short: "Drain real servers: give them no new connections",
		Long: "Give real servers no new connections, until `fairlead service enable`. Open connections\n" +
			"continue until they end, or until a deadline: the service's drain time, or --deadline. Then\n" +
			"the real servers are drained, and you can shut them down without harm to clients. A real\n" +
			"server is named by its address, its attachment or its container.\n" +
			"A container that is being stopped is drained automatically.",
		Example: "  fairlead service drain web 10.0.0.2:8080\n  fairlead service drain web web-2 --deadline 5m --wait",
		Args:    arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			if request.Now && c.Flags().Changed("deadline") {
				return usage(errors.New("--now and --deadline given: want only one of them"))
			}
			return r.call(c.Context(), func(client *admin.Client) error {
				request.Do = api.DrainReal
				if err := r.changeReals(c.Context(), client, args, request); err != nil || !wait {
					return err
				}
				return r.awaitDrains(c.Context(), client, args[0])
			})
		},
		ValidArgsFunction: r.completeReals,
	}
	r.flags(c)
	c.Flags().DurationVar(&request.Deadline, "deadline", 0, "end the remaining connections after this time, e.g. 5m "+
		"(default: the service's drain time)")
	c.Flags().BoolVar(&request.Now, "now", false, "end the connections at once")
	c.Flags().BoolVar(&wait, "wait", false, "wait until no real server of the service is draining")
	return c
}

func newServiceEnable(a *app) *cobra.Command {
	r := &remote{app: a}
	c := &cobra.Command{
		Use:   "enable NAME REAL…",
		Short: "Give real servers new connections again",
		Long: "Give new connections again to real servers that were drained, or that were taken out because\n" +
			"clients' connections to them failed (--passive). A real server that its checks find\n" +
			"down stays down.",
		Example: "  fairlead service enable web 10.0.0.2:8080",
		Args:    arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			return r.call(c.Context(), func(client *admin.Client) error {
				return r.changeReals(c.Context(), client, args, api.RealRequest{Do: api.EnableReal})
			})
		},
		ValidArgsFunction: r.completeReals,
	}
	r.flags(c)
	return c
}

// changeReals makes the same request for each real server, and prints the service
// after that.
func (r *remote) changeReals(ctx context.Context, client *admin.Client, args []string, request api.RealRequest) error {
	var errs []error
	var last api.Result
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

// pollEvery is the time between two requests for the state of drains.
const pollEvery = 250 * time.Millisecond

// awaitDrains waits until no real server of a service is draining.
func (r *remote) awaitDrains(ctx context.Context, client *admin.Client, name string) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		v, err := client.Service(ctx, name)
		if err != nil {
			return err
		}
		draining := 0
		for _, s := range v.Servers {
			if s.State == api.RealDraining {
				draining++
			}
		}
		if draining == 0 {
			r.err.note("fairlead: no real server of service %s is draining any more", name)
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// completeReals completes the first argument with the services' names, and the
// others with the real servers of that service.
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

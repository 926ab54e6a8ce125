package balance

import (
	"context"
	"errors"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

func newServiceRemove(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	now, cluster := false, false
	c := &cobra.Command{
		Use:   "rm NAME [REAL…]",
		Short: "Remove a virtual service, or real servers from it",
		Long: "Remove a virtual service at once and end its connections; or remove real servers from it. A\n" +
			"removed real server gets no new connections. It leaves when its connections have ended, or\n" +
			"when the service's drain time is over. With --now it leaves at once.",
		Example: "  fairlead service rm web\n  fairlead service rm web 10.0.0.2:8080\n  fairlead service rm web 10.0.0.2:8080 --now",
		Args:    command.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if cluster && (now || r.DryRun) {
				return command.Usage(errors.New("--cluster: --now and --dry-run are for this host: omit them"))
			}
			return r.Call(c.Context(), func(client *admin.Client) error {
				if cluster {
					return removeFromCluster(r, c.Context(), client, args)
				}
				if len(args) == 1 {
					result, err := admin.RemoveService.Do(c.Context(), client,
						admin.ServiceName{Name: args[0], DryRun: r.DryRun})
					if err != nil {
						return err
					}
					return printChanged(r, result)
				}
				if r.DryRun {
					return command.Usage(errors.New("--dry-run works for whole services only: leave it out to remove a real " +
						"server"))
				}
				return changeReals(r, c.Context(), client, args, api.RealRequest{Do: api.RemoveReal, Now: now})
			})
		},
		ValidArgsFunction: completeReals(r),
	}
	r.Changes(c)
	c.Flags().BoolVar(&now, "now", false, "remove the real server at once, and end its connections")
	c.Flags().BoolVar(&cluster, "cluster", false, "remove it from the cluster (default: only from this host)")
	return c
}

func newServiceDrain(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
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
		Args:    command.Arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			if request.Now && c.Flags().Changed("deadline") {
				return command.Usage(errors.New("--now and --deadline given: want only one of them"))
			}
			return r.Call(c.Context(), func(client *admin.Client) error {
				request.Do = api.DrainReal
				if err := changeReals(r, c.Context(), client, args, request); err != nil || !wait {
					return err
				}
				return awaitDrains(r, c.Context(), client, args[0])
			})
		},
		ValidArgsFunction: completeReals(r),
	}
	r.Flags(c)
	c.Flags().DurationVar(&request.Deadline, "deadline", 0, "end the remaining connections after this time, e.g. 5m "+
		"(default: the service's drain time)")
	c.Flags().BoolVar(&request.Now, "now", false, "end the connections at once")
	c.Flags().BoolVar(&wait, "wait", false, "wait until no real server of the service is draining")
	return c
}

func newServiceEnable(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:   "enable NAME REAL…",
		Short: "Give real servers new connections again",
		Long: "Give new connections again to real servers that were drained, or that were taken out because\n" +
			"clients' connections to them failed (--passive). A real server that its checks find\n" +
			"down stays down.",
		Example: "  fairlead service enable web 10.0.0.2:8080",
		Args:    command.Arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			return r.Call(c.Context(), func(client *admin.Client) error {
				return changeReals(r, c.Context(), client, args, api.RealRequest{Do: api.EnableReal})
			})
		},
		ValidArgsFunction: completeReals(r),
	}
	r.Flags(c)
	return c
}

// changeReals makes the same request for each real server, and prints the service
// after that.
func changeReals(r *command.Remote, ctx context.Context, client *admin.Client, args []string,
	request api.RealRequest) error {
	var errs []error
	var last api.Result
	for _, real := range args[1:] {
		request.Service, request.Real = args[0], real
		result, err := admin.ChangeReal.Do(ctx, client, request)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		last.Notes = append(last.Notes, result.Notes...)
		last.Services, last.Changed = result.Services, last.Changed || result.Changed
	}
	if len(errs) < len(args)-1 {
		errs = append(errs, printChanged(r, last))
	}
	return errors.Join(errs...)
}

// pollEvery is the time between two requests for the state of drains.
const pollEvery = 250 * time.Millisecond

// awaitDrains waits until no real server of a service is draining.
func awaitDrains(r *command.Remote, ctx context.Context, client *admin.Client, name string) error {
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
			r.Err.Note("fairlead: no real server of service %s is draining any more", name)
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// completeReals returns a completion of the first argument with the services'
// names, and of the others with the real servers of that service.
func completeReals(r *command.Remote) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return completeServices(r)(c, args, typed)
		}
		v, err := admin.NewClient(r.Socket).Service(c.Context(), args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []cobra.Completion
		for _, s := range v.Servers {
			names = append(names, wording.RealText(s))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

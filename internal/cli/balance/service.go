// Package balance has the commands of virtual services.
package balance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/syntax"

	"github.com/spf13/cobra"
)

// NewService returns the command `fairlead service`.
func NewService(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "service",
		Short: "Balance addresses and ports over real servers, with health checks",
	}
	c.AddCommand(newServiceAdd(a), newServiceSet(a), newServiceRemove(a), newServiceDrain(a), newServiceEnable(a),
		newServiceList(a), newServiceShow(a), newServiceWatch(a), newServiceImport(a))
	return c
}

// serviceFlags are the flags of `fairlead service add` and `set`.
type serviceFlags struct {
	reals   []string
	command []string
	clusterFlags
}

const realHelp = "A real server is ADDRESS[:PORT], or a selector of attached sandboxes: label=KEY[=VALUE][:PORT],\n" +
	"name=PATTERN[:PORT] or network=NETWORK[:PORT], or several of these with commas. Add ,weight=N\n" +
	"for a weight (default 1). The default port is the port to which the client connected. Selected\n" +
	"sandboxes are real servers for as long as they are attached."

func (f *serviceFlags) flags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&f.reals, "real", "r", nil, "`REAL` server: ADDRESS[:PORT] or a selector such as "+
		"label=KEY[=VALUE][:PORT]; with ,weight=N (repeatable)")
	c.Flags().StringArrayVar(&f.command, "check-command", nil, "exec: `COMMAND` to run; the server's address and "+
		"port are its last arguments (repeat the flag for each argument)")
	f.clusterFlags.flags(c)
	for _, field := range slices.Concat(syntax.ServiceFields(), syntax.CheckFields()) {
		if field.Value == "" {
			c.Flags().Bool(field.Flag, false, field.Help)
			continue
		}
		short := ""
		if field.Flag == "scheduler" {
			short = "s"
		}
		c.Flags().VarP(&word{kind: field.Value}, field.Flag, short, field.Help)
		if field.Words != nil {
			// It fails only for an unknown flag or one that has a completion already.
			_ = c.RegisterFlagCompletionFunc(field.Flag,
				cobra.FixedCompletions(field.Words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// given reports whether any of the flags is given.
func (f *serviceFlags) given(c *cobra.Command) bool {
	return len(f.reals) > 0 || c.Flags().Changed("check-command") || c.Flags().Changed("ingress") ||
		slices.ContainsFunc(slices.Concat(syntax.ServiceFields(), syntax.CheckFields()),
			func(field syntax.ServiceField) bool { return c.Flags().Changed(field.Flag) })
}

// word is a flag value that the help shows with the name kind.
type word struct{ text, kind string }

func (w *word) String() string { return w.text }

// Type implements pflag.Value.
func (w *word) Type() string { return w.kind }

// Set implements pflag.Value.
func (w *word) Set(text string) error { w.text = text; return nil }

// change applies the flags and the addresses and ports to a service.
func (f *serviceFlags) change(c *cobra.Command, v *model.VirtualService, frontends []string) error {
	if len(frontends) > 0 {
		v.Addresses, v.Ports = nil, nil
	}
	for _, word := range frontends {
		if err := syntax.Frontend(v, word); err != nil {
			return err
		}
	}
	for _, field := range slices.Concat(syntax.ServiceFields(), syntax.CheckFields()) {
		if flag := c.Flags().Lookup(field.Flag); flag.Changed {
			if err := field.Set(v, flag.Value.String()); err != nil {
				if field.Flag != field.Name { // the error has the field's name
					err = fmt.Errorf("--%s: %w", field.Flag, err)
				}
				return err
			}
		}
	}
	if c.Flags().Changed("check-command") {
		v.Check.Command = f.command
		if len(f.command) == 1 {
			v.Check.Command = strings.Fields(f.command[0])
		}
	}
	if c.Flags().Changed("check") {
		dropUnused(c, v)
	}
	if err := syntax.TypedCheck(v.Check); err != nil {
		return fmt.Errorf("--check: %w", err)
	}
	return f.putReals(v)
}

// dropUnused clears the fields that belong to another type of check, except those
// that are given now.
func dropUnused(c *cobra.Command, v *model.VirtualService) {
	for _, field := range syntax.Unused(v.Check) {
		if !c.Flags().Changed(field.Flag) {
			field.Clear(v)
		}
	}
	if syntax.UnusedCommand(v.Check) && !c.Flags().Changed("check-command") {
		v.Check.Command = nil
	}
}

// putReals adds the real servers that are given, or changes them if they exist.
func (f *serviceFlags) putReals(v *model.VirtualService) error {
	var given []model.RealServer
	for _, word := range f.reals {
		r, err := syntax.Real(word)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(given, r.Is) {
			return fmt.Errorf("real server %s: it is given twice", r)
		}
		given = append(given, r)
		if i := slices.IndexFunc(v.Reals, r.Is); i >= 0 {
			v.Reals[i] = r
		} else {
			v.Reals = append(v.Reals, r)
		}
	}
	return nil
}

func newServiceAdd(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var f serviceFlags
	c := &cobra.Command{
		Use:   "add NAME ADDRESS:PORT[,PORT…][/PROTOCOL]…",
		Short: "Create a virtual service",
		Long: "Create a virtual service: addresses and ports whose connections are balanced over real\n" +
			"servers. Repeating the command changes nothing. `fairlead service set` changes a service.\n" +
			"With --cluster, all nodes of the cluster have it, and selectors find sandboxes of all nodes.\n\n" +
			realHelp,
		Example: "  fairlead service add web 192.0.2.10:80 --real 10.0.0.2:8080 --real 10.0.0.3:8080,weight=2\n" +
			"  fairlead service add web 192.0.2.10:80,443 --interface eth0 --real label=app=web --check http --check-path /healthz\n" +
			"  fairlead service add dns 192.0.2.53:53/udp --scheduler rr --real 10.0.0.53 --check dns --check-query example.org\n" +
			"  fairlead service add web '[2001:db8::10]:80' --real '[fd00::2]:8080' --persistence 5m --drain 30s --sorry '[fd00::9]:80' --quorum 2\n" +
			"  fairlead service add web 192.0.2.10:80 --cluster --real network=shop,name=web-*",
		Args: command.Arguments(cobra.MinimumNArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			v := model.VirtualService{Name: args[0]}
			err := f.change(c, &v, args[1:])
			if err == nil {
				err = f.check(c, r.DryRun)
			}
			if err != nil {
				return command.Usage(err)
			}
			return r.Call(c.Context(), func(client *admin.Client) error {
				result, err := f.add(c.Context(), client, v, r.DryRun)
				if err != nil {
					return err
				}
				return printChanged(r, result)
			})
		},
	}
	r.Changes(c)
	f.flags(c)
	return c
}

func newServiceSet(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var f serviceFlags
	c := &cobra.Command{
		Use:   "set NAME [ADDRESS:PORT[,PORT…][/PROTOCOL]…]",
		Short: "Change a virtual service, or add real servers to it",
		Long: "Change the given settings of a virtual service, and keep the others. --real adds a real\n" +
			"server, or changes its weight; `fairlead service rm NAME REAL` removes one. Connections to\n" +
			"real servers that stay are not interrupted.\n\n" + realHelp,
		Example: "  fairlead service set web --real 10.0.0.4:8080\n  fairlead service set web --real 10.0.0.2:8080,weight=0\n" +
			"  fairlead service set web --scheduler wrr --check tcp --interval 1s",
		Args: command.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && !f.given(c) {
				return command.Usage(fmt.Errorf("nothing to change: give a flag, or an address and port (see %s --help)",
					c.CommandPath()))
			}
			if err := f.check(c, r.DryRun); err != nil {
				return command.Usage(err)
			}
			return r.Call(c.Context(), func(client *admin.Client) error {
				if f.cluster {
					return changeClusterService(r, c, client, &f, args)
				}
				return changeService(r, c, client, &f,
					args)
			})
		},
		ValidArgsFunction: completeServices(r),
	}
	r.Changes(c)
	f.flags(c)
	return c
}

// changeService reads a service and changes it. It repeats this up to three times
// if another request changed the service meanwhile.
func changeService(r *command.Remote, c *cobra.Command, client *admin.Client, f *serviceFlags, args []string) error {
	for again := 3; ; again-- {
		have, err := client.Service(c.Context(), args[0])
		if err != nil {
			return err
		}
		v := have.VirtualService.Clone()
		if err := f.change(c, &v, args[1:]); err != nil {
			return command.Usage(err)
		}
		result, err := admin.SetService.Do(c.Context(), client,
			api.ServiceRequest{VirtualService: v, Was: &have.VirtualService, DryRun: r.DryRun})
		if api.CodeOf(err) == api.Conflict && again > 0 {
			if now, failed := client.Service(c.Context(), args[0]); failed == nil &&
				!now.VirtualService.Equal(have.VirtualService) {
				continue
			}
		}
		if err != nil {
			return err
		}
		return printChanged(r, result)
	}
}

// printChanged prints the result of a request that changes services.
func printChanged(r *command.Remote, result api.Result) error {
	if r.Output == "json" || r.DryRun {
		return r.Print(result, nil)
	}
	r.Notes(result.Notes)
	if len(result.Services) == 0 {
		return nil
	}
	return printServices(r, result.Services)
}

// completeServices returns a completion of the first argument with the services' names.
func completeServices(r *command.Remote) cobra.CompletionFunc {
	return command.CompleteFirst(r,
		func(ctx context.Context, c *admin.Client) ([]api.ServiceView, error) { return c.Services(ctx) },
		func(v api.ServiceView) string { return v.Name })
}

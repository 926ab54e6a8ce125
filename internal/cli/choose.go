package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/promise"

	"github.com/spf13/cobra"
)

// spec is what the flags of `fairlead choose` request.
type spec struct {
	driver   string
	promises []string
	protocol string
}

func newChoose(a *app) *cobra.Command {
	var w spec
	var explain bool
	c := &cobra.Command{
		Use:   "choose",
		Short: "Show the cheapest publish mode that keeps the given promises",
		Long: "Show the publish mode that `--via auto` uses on this kernel: the cheapest mode that keeps\n" +
			"all given promises. `fairlead paths` shows what each mode promises.\n" +
			"The exit code is 1 if no mode keeps them all.",
		Example: "  fairlead choose\n" +
			"  fairlead choose --promise lan-source,peer-source --driver routed\n" +
			"  fairlead choose --promise input-firewall --explain",
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return a.choose(w, explain) },
	}
	f := c.Flags()
	f.StringVar(&w.driver, "driver", string(model.DriverBridge), "driver that attaches the workload: "+driverNames())
	f.StringSliceVar(&w.promises, "promise", nil, "promises that the mode must keep: "+promise.Join(promise.Publish()))
	f.StringVar(&w.protocol, "protocol", string(model.TCP), "protocol to publish: "+strings.Join(protocols, ", "))
	f.BoolVar(&explain, "explain", false, "show all modes, and why each is chosen or not")
	// They fail only for an unknown flag or one that has a completion already.
	_ = errors.Join(
		c.RegisterFlagCompletionFunc("driver", cobra.FixedCompletions(strings.Split(driverNames(), ", "), cobra.ShellCompDirectiveNoFileComp)),
		c.RegisterFlagCompletionFunc("protocol", cobra.FixedCompletions(protocols, cobra.ShellCompDirectiveNoFileComp)),
		c.RegisterFlagCompletionFunc("promise", completePromises))
	return c
}

// choose prints the choice. It prints the candidates and their reasons also if no
// mode fits, because the caller needs the reasons then.
func (a *app) choose(w spec, explain bool) error {
	d, ok := paths.Driver(model.Driver(w.driver))
	if !ok {
		return usage(fmt.Errorf("there is no driver %q: want one of %s", w.driver, driverNames()))
	}
	if !slices.Contains(protocols, w.protocol) {
		return usage(fmt.Errorf("there is no protocol %q: want one of %s", w.protocol, strings.Join(protocols, ", ")))
	}
	if _, err := promise.Named(w.promises); err != nil {
		return usage(err)
	}
	facts, err := kernel.Probe()
	if err != nil {
		return usage(err)
	}
	choice, unmet := paths.Choose(facts, d, model.Publish{Via: model.ViaAuto, Proto: model.Proto(w.protocol), Promises: w.promises}, nil)
	switch {
	case a.output == "json":
		err = a.json(choice)
	case explain:
		err = a.printChoice(choice)
	case unmet == nil:
		err = a.out.line("%s", choice.Via)
	}
	return errors.Join(unmet, err)
}

func (a *app) printChoice(choice paths.Choice) error {
	rows := [][]string{{"MODE", "VERDICT", "REASON"}}
	for _, c := range choice.Candidates {
		rows = append(rows, []string{string(c.Via), string(c.Verdict), c.Reason})
	}
	return a.out.table(rows)
}

// completePromises completes the last name of a list, without the names that the
// list has already.
func completePromises(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	done := typed[:strings.LastIndex(typed, ",")+1]
	var names []cobra.Completion
	for _, q := range promise.Publish() {
		if !slices.Contains(strings.Split(done, ","), string(q)) {
			names = append(names, done+string(q))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

var protocols = []string{string(model.TCP), string(model.UDP)}

func driverNames() string {
	var names []string
	for _, d := range paths.Drivers() {
		names = append(names, string(d.Name()))
	}
	return strings.Join(names, ", ")
}

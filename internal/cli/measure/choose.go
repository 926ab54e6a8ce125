package measure

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/cli/command"
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

// NewChoose returns the command `fairlead choose`.
func NewChoose(a *command.App) *cobra.Command {
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
		Args: command.Arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return choose(a, w, explain) },
	}
	f := c.Flags()
	f.StringVar(&w.driver, "driver", string(model.DriverBridge), "driver that attaches the workload: "+driverNames())
	f.StringSliceVar(&w.promises, "promise", nil, "promises that the mode must keep: "+promise.Join(promise.Publish()))
	f.StringVar(&w.protocol, "protocol", string(model.TCP), "protocol to publish: "+strings.Join(protocols, ", "))
	f.BoolVar(&explain, "explain", false, "show all modes, and why each is chosen or not")
	// They fail only for an unknown flag or one that has a completion already.
	_ = errors.Join(
		c.RegisterFlagCompletionFunc("driver",
			cobra.FixedCompletions(strings.Split(driverNames(), ", "), cobra.ShellCompDirectiveNoFileComp)),
		c.RegisterFlagCompletionFunc("protocol", cobra.FixedCompletions(protocols, cobra.ShellCompDirectiveNoFileComp)),
		c.RegisterFlagCompletionFunc("promise", command.CompletePromises))
	return c
}

// choose prints the choice. It prints the candidates and their reasons also if no
// mode fits, because the caller needs the reasons then.
func choose(a *command.App, w spec, explain bool) error {
	d, ok := paths.Driver(model.Driver(w.driver))
	if !ok {
		return command.Usage(fmt.Errorf("there is no driver %q: want one of %s", w.driver, driverNames()))
	}
	if !slices.Contains(protocols, w.protocol) {
		return command.Usage(fmt.Errorf("there is no protocol %q: want one of %s", w.protocol,
			strings.Join(protocols, ", ")))
	}
	if _, err := promise.Named(w.promises); err != nil {
		return command.Usage(err)
	}
	facts, err := kernel.Probe()
	if err != nil {
		return command.Usage(err)
	}
	choice, unmet := paths.Choose(facts, d,
		model.Publish{Via: model.ViaAuto, Proto: model.Proto(w.protocol), Promises: w.promises}, nil)
	switch {
	case a.Output == "json":
		err = a.JSON(choice)
	case explain:
		err = printChoice(a, choice)
	case unmet == nil:
		err = a.Out.Line("%s", choice.Via)
	}
	return errors.Join(unmet, err)
}

func printChoice(a *command.App, choice paths.Choice) error {
	rows := [][]string{{"MODE", "VERDICT", "REASON"}}
	for _, c := range choice.Candidates {
		rows = append(rows, []string{string(c.Via), string(c.Verdict), c.Reason})
	}
	return a.Out.Table(rows)
}

var protocols = []string{string(model.TCP), string(model.UDP)}

func driverNames() string {
	var names []string
	for _, d := range paths.Drivers() {
		names = append(names, string(d.Name()))
	}
	return strings.Join(names, ", ")
}

// Package explain has the commands that explain and diagnose: what the host has, and
// why.
package explain

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"fairlead/internal/cli/command"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/probe"
	"fairlead/internal/model"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

// NewExplain returns the command `fairlead explain`.
func NewExplain(a *command.App) *cobra.Command {
	x := &explainer{Remote: command.Remote{App: a}}
	x.api.Remote = &x.Remote
	c := &cobra.Command{
		Use:   "explain FROM to [TO]:PORT[/tcp|/udp] | [FROM to] URL",
		Short: "Show a flow's path hop by hop, or what the gateway does with a request",
		Long: "Show each hop of the first packet of a flow: the route, the rule or map element, the bridge\n" +
			"port, the eBPF program, the proxy, and the socket at the end with its process and container;\n" +
			"or what drops the packet. The rules of all programs are read, also those of Docker and of\n" +
			"the firewall. No daemon is needed.\n\n" +
			"FROM is an address of the LAN, host, localhost, an attachment, or a sandbox as for\n" +
			"`fairlead inspect`. TO is an address or such a name, or empty for the host itself.\n" +
			"With an arrow, quote the flow as one word: 'web -> db:5432'.\n\n" +
			"For a virtual service, the hop shows the data plane that takes the packet and the real\n" +
			"servers that can get it. If the service uses hashing and you give the client's port\n" +
			"(10.0.0.7:40000 to …), it shows which real server gets it.\n\n" +
			"For a URL, the gateway is asked: the entry point, certificate, router, middlewares and\n" +
			"servers of the request are shown, or the nearest routers and what of their rules does not\n" +
			"match. With FROM, the path to the entry point is shown first.\n\n" +
			"If the flow leaves this host for a sandbox of another node of its cluster, the daemon asks\n" +
			"that node, and what it reports is shown below.",
		Example: "  fairlead explain 10.0.0.7 to :8080\n" +
			"  fairlead explain 'web -> db:5432'\n" +
			"  fairlead explain localhost to :5353/udp\n" +
			"  fairlead explain web to 192.0.2.9:443 -o json\n" +
			"  fairlead explain 10.0.0.7:40000 to 192.0.2.80:80\n" +
			"  fairlead explain https://shop.example.org/cart",
		Args: command.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if isRequest(args) {
				return x.explainURL(c, args)
			}
			f, err := flow.Parse(args)
			if err != nil {
				return command.Usage(err)
			}
			if os.Geteuid() != 0 {
				return command.Usage(errors.New("root is needed to read network namespaces: run as root, e.g. with sudo"))
			}
			e, err := x.explain(c.Context(), f)
			if err != nil {
				return err
			}
			if x.Output == "json" {
				return errors.Join(x.JSON(e), disagreement(e))
			}
			if slices.ContainsFunc(e.Hops, func(h flow.Hop) bool {
				return command.NamesDocker(h.Where + " " +
					h.What)
			}) {
				explanation(command.AskDocker(c.Context(), []model.Origin{model.FromDocker}), &e)
			}
			if err := x.print(e); err != nil {
				return err
			}
			return disagreement(e)
		},
	}
	x.Flags(c)
	x.api.Flag(c, "gateway")
	c.Flags().StringVar(&x.method, "method", "GET", "method of the request to a URL")
	c.Flags().StringVar(&x.probe, "probe", "", "send one packet, and show at which hops it was seen; `ADDRESS` "+
		"allows\nsending to that address although it is not of this host")
	c.Flags().Lookup("probe").NoOptDefVal = probeThisHost
	c.Flags().DurationVar(&x.timeout, "timeout", probeTimeout, "how long --probe waits for a reply")
	return c
}

// probeThisHost is the value of --probe without an address.
const probeThisHost = "here"

// The default and the maximum of --timeout.
const (
	probeTimeout    = 2 * time.Second
	maxProbeTimeout = time.Minute
)

// explainer explains a flow.
type explainer struct {
	command.Remote
	probe   string
	timeout time.Duration
	// api and method are for requests to a URL.
	api    command.GatewayAPI
	method string
}

// probing returns the options of a probe, or nil if none is to be sent.
func (x *explainer) probing() (*probe.Options, error) {
	if x.timeout <= 0 || x.timeout > maxProbeTimeout {
		return nil, fmt.Errorf("timeout %s: want a duration above 0, up to %s", x.timeout, maxProbeTimeout)
	}
	opt := &probe.Options{Timeout: x.timeout}
	switch x.probe {
	case "":
		return nil, nil
	case probeThisHost:
		return opt, nil
	}
	var err error
	if opt.Allow, err = netip.ParseAddr(x.probe); err != nil {
		return nil, fmt.Errorf("probe %q: want the IP address to send a packet to", x.probe)
	}
	return opt, nil
}

// explain reads this host's state, asks the daemon for its publishes and
// services, and explains the flow.
func (x *explainer) explain(ctx context.Context, f flow.Flow) (e flow.Explanation, err error) {
	send, err := x.probing()
	if err != nil {
		return e, command.Usage(err)
	}
	return examiner(&x.Remote).Flow(ctx, f, send)
}

// print prints one paragraph per hop: its place and what happens there, then the
// rule or program that causes it.
func (x *explainer) print(e flow.Explanation) error {
	lines := []string{fmt.Sprintf("%s/%s", wording.Endpoints(e.Source, e.Destination), e.Proto), ""}
	width := 0
	for _, h := range e.Hops {
		width = max(width, utf8.RuneCountInString(wording.Place(h)))
	}
	for _, h := range e.Hops {
		what := h.What
		if h.Seen != "" {
			what += " [" + h.Seen + "]"
		}
		lines = append(lines, fmt.Sprintf("%2d  %-*s  %s", h.Number, width, wording.Place(h), what))
		program := ""
		if h.Program != "" {
			program = "eBPF program " + h.Program
		}
		for _, more := range append(wording.Candidates(h.Balance), h.By, program, h.Why) {
			if more != "" {
				lines = append(lines, fmt.Sprintf("%*s%s", width+8, "", more))
			}
		}
	}
	lines = append(lines, "", wording.Sentence(e, e.Verdict))
	lines = append(lines, wording.Remarks(e)...)
	return x.Out.Lines(append(lines, wording.FurtherLines(e.Further)...)...)
}

// disagreement returns an error if the probe's result differs from the
// explanation.
func disagreement(e flow.Explanation) error {
	if e.Probe == nil || e.Probe.Agrees || e.Probe.Result == probe.NotSent {
		return nil
	}
	return fmt.Errorf("the probe was %s, but the explanation says %s: something on the packet's path is unknown to "+
		"explain", e.Probe.Result, e.Outcome)
}

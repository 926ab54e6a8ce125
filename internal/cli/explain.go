package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"fairlead/internal/daemon"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/sight"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/service"
	"fairlead/internal/kernel"
	"fairlead/internal/sandbox"

	"github.com/spf13/cobra"
)

func newExplain(a *app) *cobra.Command {
	r := &remote{app: a}
	c := &cobra.Command{
		Use:   "explain FROM to [TO]:PORT[/tcp|/udp]",
		Short: "Show which way a flow takes, hop by hop, and what sends it there",
		Long: "Show each hop that the first packet of a flow takes: the route, the rule or map\n" +
			"element, the bridge port, the eBPF program, the proxy, and the socket at the end, with\n" +
			"its process and container; or what drops it. It reads everybody's rules, Docker's and\n" +
			"the firewall's too, and works without a daemon.\n\n" +
			"FROM is an address of the LAN, host, localhost, an attachment, or a sandbox as for\n" +
			"`fairlead inspect`. TO is an address, such a name, or nothing for the host itself.\n" +
			"With an arrow the flow is one quoted word: 'web -> db:5432'.",
		Example: "  fairlead explain 10.0.0.7 to :8080\n" +
			"  fairlead explain 'web -> db:5432'\n" +
			"  fairlead explain localhost to :5353/udp\n" +
			"  fairlead explain web to 192.0.2.9:443 -o json",
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := flow.Parse(args)
			if err != nil {
				return usage(err)
			}
			if os.Geteuid() != 0 {
				return usage(errors.New("root is needed to look into network namespaces: run as root, e.g. with sudo"))
			}
			e, err := r.explain(c.Context(), f)
			if err != nil {
				return err
			}
			if r.output == "json" {
				return r.json(e)
			}
			return r.printExplanation(e)
		},
	}
	r.flags(c)
	return c
}

// explain looks at this host, and asks the daemon what it has published.
func (r *remote) explain(ctx context.Context, f flow.Flow) (e flow.Explanation, err error) {
	host, err := kernel.Open("", kernel.Options{Pins: service.Pins(service.Beside(r.socket, admin.Socket))})
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	opt := sight.Options{Sandboxes: map[string]string{}, Finder: sandbox.New()}
	attachments, err := admin.NewClient(r.socket).Attachments(ctx)
	if err != nil && !gone(err) {
		return e, err
	}
	for _, v := range attachments {
		opt.Sandboxes[v.Name] = v.Sandbox
		opt.Published = append(opt.Published, published(v)...)
	}
	world, err := sight.New(host, opt)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	return flow.Explain(world, f)
}

// published are the ports of an attachment, as explanations know them.
func published(v daemon.View) []flow.Published {
	var all []flow.Published
	for _, p := range v.Publishes {
		all = append(all, flow.Published{Publish: p.Publish, Driver: v.Driver, Addresses: v.AllAddresses()})
	}
	return all
}

// printExplanation prints a hop a paragraph: where and what, and below by what
// and why.
func (r *remote) printExplanation(e flow.Explanation) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s", endpoints(e.Source, e.Destination), e.Proto)
	b.WriteString("\n\n")
	rows := make([]string, len(e.Hops))
	width := 0
	for i, h := range e.Hops {
		rows[i] = strings.TrimSpace(h.Where + " " + h.Link)
		width = max(width, len(rows[i]))
	}
	for i, h := range e.Hops {
		what := h.What
		if h.Seen != "" {
			what += "  [" + h.Seen + "]"
		}
		fmt.Fprintf(&b, "%2d  %-*s  %s\n", h.Number, width, rows[i], what)
		for _, more := range []string{h.By, h.Why} {
			if more != "" {
				fmt.Fprintf(&b, "%*s%s\n", width+8, "", more)
			}
		}
	}
	fmt.Fprintf(&b, "\n%s\n", sentence(e.Verdict))
	if e.Uncertain {
		b.WriteString("Some rules hold more than is understood here: --probe tells for certain.\n")
	}
	for _, n := range e.Notes {
		fmt.Fprintf(&b, "Not looked at: %s\n", n)
	}
	_, err := fmt.Fprint(r.out, b.String())
	return err
}

func endpoints(from netip.Addr, to netip.AddrPort) string {
	if !from.IsValid() {
		return "to " + to.String()
	}
	return fmt.Sprintf("%s -> %s", from, to)
}

// sentence begins with a capital and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

package connect

import (
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/syntax"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

// attachFlags are the flags of `fairlead attach`.
type attachFlags struct {
	addresses, gateways, routes []string
	ports                       []string
	rateIn, rateOut, pkey       string
	request                     api.AttachRequest
}

// NewAttach returns the command `fairlead attach`.
func NewAttach(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var f attachFlags
	c := &cobra.Command{
		Use:   "attach NETWORK SANDBOX | --device DEVICE SANDBOX",
		Short: "Attach a running sandbox to a network, or give it a device",
		Long: "Attach a running sandbox to a network, or move a whole device of the host into it.\n\n" +
			sandboxHelp + "\n\n" +
			"Repeating the command changes nothing; other flags change the attachment. A sandbox that has\n" +
			"a default route keeps it. `fairlead detach` undoes everything; so does the end of the\n" +
			"sandbox. With --keep, and always for a device, the attachment is applied again when the\n" +
			"sandbox starts again, unless SANDBOX is a PID.",
		Example: "  fairlead attach web container:shop\n" +
			"  fairlead attach web /run/netns/blue --interface eth1 --address 172.30.0.7 --name blue\n" +
			"  fairlead attach lan 4711 --dhcp\n" +
			"  fairlead attach lan shop --address 192.0.2.7/24 --gateway 192.0.2.1 --route 10.0.0.0/8,via=192.0.2.254\n" +
			"  fairlead attach web shop -p 8080:80 -p 127.0.0.1:5353:53/udp\n" +
			"  fairlead attach web shop --rate-out 100mbit --rate-in 1gbit\n" +
			"  fairlead attach --device 0000:3b:02.1 shop --address 192.0.2.7/24",
		Args: command.Arguments(cobra.RangeArgs(1, 2)),
		RunE: func(c *cobra.Command, args []string) error {
			request, err := f.parse(args)
			if err != nil {
				return command.Usage(err)
			}
			request.DryRun = r.DryRun
			line := attached
			if len(request.Publishes) > 0 {
				line = published
			}
			return command.Do(c.Context(), r, admin.Attach, request, r.Printing(line))
		},
		ValidArgsFunction: r.CompleteNetworks(),
	}
	r.Changes(c)
	f.flags(c)
	return c
}

// attached returns the line for an attachment: name, interface and addresses.
func attached(v api.View) string {
	return fmt.Sprintf("%s  %s  %s", v.Name, v.InterfaceName(), wording.OrDash(strings.Join(command.Addresses(v), " ")))
}

// published returns the same line with the published ports.
func published(v api.View) string {
	return attached(v) + "  " + wording.OrDash(strings.Join(publishes(v), " "))
}

func (f *attachFlags) flags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.request.Device, "device", "", "device to move into the sandbox: its name, or its PCI address")
	flags.StringVar(&f.pkey, "pkey", "", "move a child of the InfiniBand device with this partition key, e.g. "+
		"0x8001, instead of the device")
	flags.StringVar(&f.request.Name, "name", "", "name of the attachment (default: the sandbox's name)")
	flags.StringVar(&f.request.Interface, "interface", "",
		"name of the interface in the sandbox (default: the first of eth0, eth1 … that is free)")
	flags.StringArrayVar(&f.addresses, "address", nil, "address of the sandbox, with a prefix length if the network "+
		"has no subnet (repeatable; default: the next free one)")
	flags.StringArrayVar(&f.gateways, "gateway", nil,
		"default gateway, or none (repeatable; default: the network's, unless the sandbox has one)")
	flags.StringArrayVar(&f.routes, "route", nil, "additional route: RANGE[,via=ADDRESS] (repeatable)")
	flags.StringArrayVarP(&f.ports, "publish", "p", nil, "port or range to publish too, as fairlead publish does: "+
		"[ADDRESS:]HOST:CONTAINER[/tcp|/udp] (repeatable)")
	flags.StringVar(&f.request.MAC, "mac", "", "MAC address of the interface in the sandbox")
	flags.StringVar(&f.rateOut, "rate-out", "", "maximum rate at which the sandbox sends, e.g. 100mbit (default: "+
		"unlimited)")
	flags.StringVar(&f.rateIn, "rate-in", "", "maximum rate at which the sandbox receives, e.g. 100mbit (default: "+
		"unlimited)")
	flags.BoolVar(&f.request.DHCP, "dhcp", false, "get the address from a DHCP server of the network, and renew its "+
		"lease")
	flags.BoolVar(&f.request.Keep, "keep", false, "attach the sandbox again whenever it starts again")
}

func (f *attachFlags) parse(args []string) (api.AttachRequest, error) {
	request := f.request
	switch {
	case request.Device != "" && len(args) == 1:
		request.Sandbox = args[0]
	case request.Device != "":
		return request, errors.New("network and --device given: name only one of them")
	case len(args) == 2:
		request.Network, request.Sandbox = args[0], args[1]
	default:
		return request, errors.New("sandbox or network missing: name the network and the sandbox, or --device and " +
			"the sandbox")
	}
	if request.DHCP && len(f.addresses) > 0 {
		return request, errors.New("--dhcp and --address given: want only one of them")
	}
	if request.Interface != "" {
		if err := model.ValidInterface(request.Interface); err != nil {
			return request, err
		}
	}
	for _, port := range f.ports {
		p, err := syntax.Publish(port)
		if err != nil {
			return request, fmt.Errorf("publish %s: %w", port, err)
		}
		p.Via = model.ViaAuto
		request.Publishes = append(request.Publishes, p)
	}
	var err error
	if request.Limit.Out, err = syntax.Rate(f.rateOut); err != nil {
		return request, fmt.Errorf("rate-out %w", err)
	}
	if request.Limit.In, err = syntax.Rate(f.rateIn); err != nil {
		return request, fmt.Errorf("rate-in %w", err)
	}
	if f.pkey != "" {
		if request.PKey, err = syntax.PKey(f.pkey); err != nil {
			return request, err
		}
		if request.Device == "" {
			return request, fmt.Errorf("pkey %s: it needs --device: name the InfiniBand device", f.pkey)
		}
	}
	return request, f.parseWords(&request.Endpoint)
}

// parseWords parses the flags that can be repeated.
func (f *attachFlags) parseWords(e *model.Endpoint) error {
	for _, word := range f.addresses {
		if err := syntax.Address(e, word); err != nil {
			return err
		}
	}
	for _, word := range f.gateways {
		if err := syntax.Gateway(e, word); err != nil {
			return err
		}
	}
	for _, word := range f.routes {
		r, err := syntax.Route(word)
		if err != nil {
			return err
		}
		e.Routes = append(e.Routes, r)
	}
	return nil
}

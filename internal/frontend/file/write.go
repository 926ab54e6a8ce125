package file

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"fairlead/internal/api"
	"fairlead/internal/escape"
	"fairlead/internal/model"
	"fairlead/internal/syntax"

	"go.yaml.in/yaml/v3"
)

// The objects of a file, with their fields in the order in which they are written.
type (
	fileText struct {
		Name        string                 `yaml:"name,omitempty" json:"name,omitempty"`
		Networks    map[string]networkText `yaml:"networks,omitempty" json:"networks,omitempty"`
		Attachments []attachmentText       `yaml:"attachments,omitempty" json:"attachments,omitempty"`
		Services    map[string]ordered     `yaml:"services,omitempty" json:"services,omitempty"`
		Addresses   []any                  `yaml:"addresses,omitempty" json:"addresses,omitempty"`
		Gateway     ordered                `yaml:"gateway,omitempty" json:"gateway,omitempty"`
		Cluster     map[string]ordered     `yaml:"cluster,omitempty" json:"cluster,omitempty"`
	}
	networkText struct {
		Driver    model.Driver   `yaml:"driver" json:"driver"`
		Subnet    []string       `yaml:"subnet,flow,omitempty" json:"subnet,omitempty"`
		Gateway   []string       `yaml:"gateway,flow,omitempty" json:"gateway,omitempty"`
		Range     []string       `yaml:"range,flow,omitempty" json:"range,omitempty"`
		Address   []string       `yaml:"address,flow,omitempty" json:"address,omitempty"`
		Parent    string         `yaml:"parent,omitempty" json:"parent,omitempty"`
		Mode      model.Mode     `yaml:"mode,omitempty" json:"mode,omitempty"`
		VLAN      uint16         `yaml:"vlan,omitempty" json:"vlan,omitempty"`
		PKey      string         `yaml:"pkey,omitempty" json:"pkey,omitempty"`
		MTU       int            `yaml:"mtu,omitempty" json:"mtu,omitempty"`
		Internal  bool           `yaml:"internal,omitempty" json:"internal,omitempty"`
		Overlap   bool           `yaml:"allow-overlap,omitempty" json:"allow-overlap,omitempty"`
		Hairpin   bool           `yaml:"hairpin,omitempty" json:"hairpin,omitempty"`
		Filter    model.Filter   `yaml:"filter,omitempty" json:"filter,omitempty"`
		Outbound  model.Outbound `yaml:"outbound,omitempty" json:"outbound,omitempty"`
		Flowtable bool           `yaml:"flowtable,omitempty" json:"flowtable,omitempty"`
		VNI       uint32         `yaml:"vni,omitempty" json:"vni,omitempty"`
		Port      uint16         `yaml:"port,omitempty" json:"port,omitempty"`
		Underlay  []string       `yaml:"underlay,flow,omitempty" json:"underlay,omitempty"`
		Peer      []any          `yaml:"peer,omitempty" json:"peer,omitempty"`
		Group     string         `yaml:"group,omitempty" json:"group,omitempty"`
		Encrypt   bool           `yaml:"encrypt,omitempty" json:"encrypt,omitempty"`
		KeyFile   string         `yaml:"key-file,omitempty" json:"key-file,omitempty"`
	}
	peerText struct {
		Address  string             `yaml:"address" json:"address"`
		Range    []string           `yaml:"range,flow,omitempty" json:"range,omitempty"`
		Further  []string           `yaml:"further,flow,omitempty" json:"further,omitempty"`
		Endpoint []peerEndpointText `yaml:"endpoint,omitempty" json:"endpoint,omitempty"`
	}
	peerEndpointText struct {
		Address []string `yaml:"address,flow" json:"address"`
		MAC     string   `yaml:"mac,omitempty" json:"mac,omitempty"`
	}
	attachmentText struct {
		Sandbox   string   `yaml:"sandbox" json:"sandbox"`
		Network   string   `yaml:"network,omitempty" json:"network,omitempty"`
		Device    string   `yaml:"device,omitempty" json:"device,omitempty"`
		PKey      string   `yaml:"pkey,omitempty" json:"pkey,omitempty"`
		Name      string   `yaml:"name,omitempty" json:"name,omitempty"`
		Interface string   `yaml:"interface,omitempty" json:"interface,omitempty"`
		Address   []string `yaml:"address,flow,omitempty" json:"address,omitempty"`
		Gateway   []string `yaml:"gateway,flow,omitempty" json:"gateway,omitempty"`
		Route     []string `yaml:"route,flow,omitempty" json:"route,omitempty"`
		MAC       string   `yaml:"mac,omitempty" json:"mac,omitempty"`
		RateOut   string   `yaml:"rate-out,omitempty" json:"rate-out,omitempty"`
		RateIn    string   `yaml:"rate-in,omitempty" json:"rate-in,omitempty"`
		DHCP      bool     `yaml:"dhcp,omitempty" json:"dhcp,omitempty"`
		Publish   []any    `yaml:"publish,omitempty" json:"publish,omitempty"`
	}
	publishText struct {
		Published     string      `yaml:"published" json:"published"`
		Target        string      `yaml:"target" json:"target"`
		HostIP        string      `yaml:"host_ip,omitempty" json:"host_ip,omitempty"`
		Protocol      model.Proto `yaml:"protocol,omitempty" json:"protocol,omitempty"`
		Via           model.Via   `yaml:"via,omitempty" json:"via,omitempty"`
		Promise       []string    `yaml:"promise,flow,omitempty" json:"promise,omitempty"`
		ProxyProtocol int         `yaml:"proxy-protocol,omitempty" json:"proxy-protocol,omitempty"`
		Reset         bool        `yaml:"reset,omitempty" json:"reset,omitempty"`
	}
)

// Write writes a Spec as YAML. Read returns the same Spec for it.
func Write(w io.Writer, spec api.Spec) error {
	var document yaml.Node
	if err := document.Encode(written(spec)); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	quoteHidden(&document)
	encoder := yaml.NewEncoder(escape.Writer(w))
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return encoder.Close()
}

// quoteHidden puts texts with hidden characters in double quotes. YAML decodes the
// escape sequences of package escape only there.
func quoteHidden(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && escape.Line(n.Value) != n.Value {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, part := range n.Content {
		quoteHidden(part)
	}
}

// WriteJSON writes a Spec as JSON. Read returns the same Spec for it.
func WriteJSON(w io.Writer, spec api.Spec) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(written(spec))
}

func written(spec api.Spec) fileText {
	f := fileText{Name: spec.Set, Gateway: writtenGateway(spec.Gateway)}
	if c := spec.ClusterGateway; c != nil {
		f.Cluster = map[string]ordered{"gateway": writtenFields(reflect.ValueOf(*c))}
	}
	for _, n := range spec.Networks {
		if f.Networks == nil {
			f.Networks = map[string]networkText{}
		}
		f.Networks[n.Name] = writtenNetwork(n)
	}
	for _, a := range spec.Attachments {
		f.Attachments = append(f.Attachments, writtenAttachment(a))
	}
	for _, v := range spec.Addresses {
		f.Addresses = append(f.Addresses, writtenAddress(v))
	}
	if len(spec.Services)+len(spec.ClusterServices) > 0 {
		f.Services = map[string]ordered{}
	}
	for _, v := range spec.Services {
		f.Services[v.Name] = writtenService(v)
	}
	for _, v := range spec.ClusterServices {
		f.Services[v.Name] = writtenClusterService(v)
	}
	return f
}

func writtenNetwork(n model.Network) networkText {
	o := n.Overlay
	t := networkText{Driver: n.Driver, Parent: n.Parent, Mode: n.Mode, VLAN: n.VLAN, PKey: pkey(n.PKey), MTU: n.MTU,
		Internal: n.Internal, Overlap: n.AllowOverlap, Hairpin: n.Hairpin, Filter: n.Filter, Outbound: n.Outbound,
		Flowtable: n.Flowtable, VNI: o.VNI, Port: o.Port, Underlay: o.Underlays, Encrypt: o.Encrypt, KeyFile: o.KeyFile}
	for _, s := range n.Subnets {
		t.Subnet = append(t.Subnet, s.Prefix.String())
		if s.Gateway.IsValid() {
			t.Gateway = append(t.Gateway, s.Gateway.String())
		}
		if s.Range.IsValid() {
			t.Range = append(t.Range, s.Range.String())
		}
		if s.Address.IsValid() {
			t.Address = append(t.Address, s.Address.String())
		}
	}
	for _, p := range o.Peers {
		t.Peer = append(t.Peer, writtenPeer(p))
	}
	if o.Group.IsValid() {
		t.Group = o.Group.String()
	}
	return t
}

func pkey(key uint16) string {
	if key == 0 {
		return ""
	}
	return syntax.FormatPKey(key)
}

// writtenPeer writes a peer as one word if that is possible, else as an object.
func writtenPeer(p model.Peer) any {
	if len(p.Further) == 0 && len(p.Endpoints) == 0 {
		return syntax.FormatPeer(p)
	}
	t := peerText{Address: p.Address.String(), Range: strs(p.Ranges), Further: strs(p.Further)}
	for _, e := range p.Endpoints {
		t.Endpoint = append(t.Endpoint, peerEndpointText{strs(e.Addresses), e.MAC})
	}
	return t
}

func writtenAttachment(a api.Declared) attachmentText {
	t := attachmentText{Sandbox: a.Sandbox, Network: a.Network, Device: a.Device, PKey: pkey(a.PKey), Name: a.Name,
		Interface: a.Interface,
		Address:   append(strs(a.Addresses), strs(a.Prefixes)...), Gateway: strs(a.Gateways), MAC: a.MAC,
		RateOut: syntax.FormatRate(a.Limit.Out), RateIn: syntax.FormatRate(a.Limit.In), DHCP: a.DHCP}
	if a.NoDefault {
		t.Gateway = []string{syntax.NoGateway}
	}
	for _, r := range a.Routes {
		t.Route = append(t.Route, syntax.FormatRoute(r))
	}
	for _, p := range a.Publishes {
		t.Publish = append(t.Publish, writtenPublish(p))
	}
	return t
}

// writtenPublish writes a publish as one word if that is possible, else as an
// object.
func writtenPublish(p model.Publish) any {
	if p.Via == model.ViaAuto && len(p.Promises) == 0 && p.ProxyProtocol == 0 && !p.Reset {
		return syntax.FormatPublish(p)
	}
	t := publishText{Published: p.HostPorts.String(), Target: p.Ports.String(), Protocol: p.Proto, Via: p.Via,
		Promise: p.Promises, ProxyProtocol: p.ProxyProtocol, Reset: p.Reset}
	if p.HostAddr.IsValid() {
		t.HostIP = p.HostAddr.String()
	}
	return t
}

func strs[T fmt.Stringer](values []T) []string {
	var all []string
	for _, v := range values {
		all = append(all, v.String())
	}
	return all
}

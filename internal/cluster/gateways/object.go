package gateways

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/expression"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// The limits of records, which any node can write.
const (
	maxObjects     = 10_000
	maxObjectBytes = 64 << 10
	maxDown        = 128
	// maxExpressions is in instructions of regular expressions, see expression.Size. Compiled, those of all objects have
	// about 100 MB.
	maxExpressions = 100 * expression.MaxSize
)

// kind is a kind of objects.
type kind struct {
	// section is the place of its objects in a file in lower case, name what problems call it.
	section, name string
	// put decodes an object strictly, checks it, and returns what puts it into a configuration.
	put func(name string, text []byte) (func(*gateway.Config), error)
}

// kinds are those that a cluster has. Certificates and stores are those of each host.
var kinds = []kind{
	kindOf("http.routers", "router", noCheck[gateway.Router],
		func(c *gateway.Config) *map[string]*gateway.Router { return &c.HTTP.Routers }),
	kindOf("http.middlewares", "middleware", noCheck[gateway.Middleware],
		func(c *gateway.Config) *map[string]*gateway.Middleware { return &c.HTTP.Middlewares }),
	kindOf("http.services", "service", checkService,
		func(c *gateway.Config) *map[string]*gateway.Service { return &c.HTTP.Services }),
	kindOf("http.serverstransports", "transport", noCheck[gateway.ServersTransport],
		func(c *gateway.Config) *map[string]*gateway.ServersTransport { return &c.HTTP.ServersTransports }),
	kindOf("tcp.routers", "TCP router", noCheck[gateway.TCPRouter],
		func(c *gateway.Config) *map[string]*gateway.TCPRouter { return &c.TCP.Routers }),
	kindOf("tcp.middlewares", "TCP middleware", noCheck[gateway.TCPMiddleware],
		func(c *gateway.Config) *map[string]*gateway.TCPMiddleware { return &c.TCP.Middlewares }),
	kindOf("tcp.services", "TCP service", checkTCPService,
		func(c *gateway.Config) *map[string]*gateway.TCPService { return &c.TCP.Services }),
	kindOf("tcp.serverstransports", "TCP transport", noCheck[gateway.TCPServersTransport],
		func(c *gateway.Config) *map[string]*gateway.TCPServersTransport { return &c.TCP.ServersTransports }),
	kindOf("udp.routers", "UDP router", noCheck[gateway.UDPRouter],
		func(c *gateway.Config) *map[string]*gateway.UDPRouter { return &c.UDP.Routers }),
	kindOf("udp.services", "UDP service", checkUDPService,
		func(c *gateway.Config) *map[string]*gateway.UDPService { return &c.UDP.Services }),
	kindOf("tls.options", "TLS options", noCheck[gateway.TLSOptions],
		func(c *gateway.Config) *map[string]*gateway.TLSOptions { return &c.TLS.Options }),
}

func kindOf[T any](section, name string, check func(*T) error, of func(*gateway.Config) *map[string]*T) kind {
	return kind{section, name, func(name string, text []byte) (func(*gateway.Config), error) {
		value := new(T)
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		err := decoder.Decode(value)
		if err == nil {
			err = gateway.OneKind(value)
		}
		if err == nil {
			err = noFiles(value)
		}
		if err == nil {
			err = check(value)
		}
		if err != nil {
			return nil, err
		}
		return func(c *gateway.Config) {
			all := of(c)
			if *all == nil {
				*all = map[string]*T{}
			}
			(*all)[name] = value
		}, nil
	}}
}

// kindIn returns the kind of a section.
func kindIn(section string) (kind, bool) {
	for _, k := range kinds {
		if k.section == section {
			return k, true
		}
	}
	return kind{}, false
}

// object is an object that was read from its record.
type object struct {
	entry kv.Entry
	kind  kind
	name  string
	set   string
	// put is nil if the object cannot be used.
	put func(*gateway.Config)
	// size is that of its regular expressions.
	size int
	err  error
}

// read returns the object of a record.
func read(e kv.Entry) object {
	o := object{entry: e, kind: kind{name: "object"}}
	names := record.Names(record.Gateway, e.Key, 2)
	if o.name = names[len(names)-1]; len(names) != 2 {
		o.err = fmt.Errorf("record %s: want %sSECTION/NAME", e.Key, record.Gateway)
		return o
	}
	k, known := kindIn(names[0])
	if !known {
		o.err = fmt.Errorf("record %s: this version knows no section %s", e.Key, names[0])
		return o
	}
	o.kind = k
	r, err := record.Decode[record.GatewayObject](e)
	o.set = r.Set
	switch {
	case len(e.Value) > maxObjectBytes:
		err = fmt.Errorf("it has %d bytes: want at most %d", len(e.Value), maxObjectBytes)
	case err == nil:
		err = checkName(k, o.name)
	}
	if err == nil {
		o.put, err = k.put(o.name, r.Spec)
	}
	o.err = err
	return o
}

// problem returns the problem of an object.
func (o object) problem(text string, warning bool) model.GatewayProblem {
	return model.GatewayProblem{Kind: o.kind.name, Name: o.name, Text: text, Warning: warning}
}

// validName is what the names of objects can be: they are parts of keys and of NAME@cluster.
var validName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*$`)

// maxName is the length of the longest one. An expression with the limit takes half a millisecond at each start.
const maxName = 128

func checkName(k kind, name string) error {
	switch {
	case len(name) > maxName || !validName.MatchString(name):
		return fmt.Errorf("name %q: want at most 128 letters, digits and . : _ -", name)
	case k.section == "tls.options" && name == "default":
		return errors.New("name default: these options are those of each host: choose another name")
	}
	return nil
}

func noCheck[T any](*T) error { return nil }

// noFiles returns an error for an object that names a file: a daemon would read it as root for any node.
func noFiles(value any) error {
	for _, name := range gateway.Files(value) {
		return fmt.Errorf("%q is the name of a file of the host: want the text itself (PEM), or declare the object on each "+
			"host and refer to it as NAME@file", name)
	}
	return nil
}

func checkService(s *gateway.Service) error {
	for _, one := range s.Servers() {
		err := one.Validate()
		switch {
		case err != nil:
			return fmt.Errorf("server %s: %w", one.URL, err)
		case one.Service != "":
			return fmt.Errorf("server %s: want the sandboxes of the virtual service, e.g. network: NAME, label: KEY=VALUE, "+
				"port: 8080", one.Service)
		}
		if err := checkSelector(one.Selector()); err != nil {
			return err
		}
	}
	return nil
}

func checkTCPService(s *gateway.TCPService) error {
	return checkServers(s.Servers(), func(one gateway.TCPServer) string { return one.Address })
}

func checkUDPService(s *gateway.UDPService) error {
	return checkServers(s.Servers(), func(one gateway.UDPServer) string { return one.Address })
}

func checkServers[T interface {
	Validate() error
	Selector() gateway.Selector
}](servers []T, address func(T) string) error {
	for _, one := range servers {
		if err := errors.Join(one.Validate(), checkSelector(one.Selector())); err != nil {
			return fmt.Errorf("server %s: %w", address(one), err)
		}
	}
	return nil
}

// checkSelector returns an error for a selector that a cluster cannot have.
func checkSelector(s gateway.Selector) error {
	if s.IsZero() {
		return nil
	}
	if s.Network == "" {
		return errors.New("its selector names no network of the cluster: add network: NAME")
	}
	if _, err := path.Match(s.Name, ""); err != nil {
		return fmt.Errorf("name %q: want a pattern such as web-*", s.Name)
	}
	return nil
}

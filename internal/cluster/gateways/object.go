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

// kind is a kind of objects. section is the place of its objects in a file in lower case, name what problems call it,
// and index that in gateway.Config.Objects.
type kind struct {
	section, name string
	index         int
}

// kindIn returns the kind of a section. Certificates and stores are those of each host.
func kindIn(section string) (kind, bool) {
	for i, all := range new(gateway.Config).Objects() {
		switch {
		case all.Section() != section || section == "tls.stores":
		case section == "tls.options":
			return kind{section, "TLS options", i}, true
		default:
			return kind{section, all.Kind(), i}, true
		}
	}
	return kind{}, false
}

// decode decodes an object strictly, and checks it.
func (k kind) decode(text []byte) (any, error) {
	value := new(gateway.Config).Objects()[k.index].New()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(value)
	for _, check := range []func(any) error{gateway.OneKind, noFiles, checkService} {
		if err == nil {
			err = check(value)
		}
	}
	return value, err
}

// object is an object that was read from its record.
type object struct {
	entry kv.Entry
	kind  kind
	name  string
	set   string
	// value is a pointer to the object, which can be used if err is nil.
	value any
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
		o.value, err = k.decode(r.Spec)
	}
	o.err = err
	return o
}

// put adds the object to those of a configuration.
func (o object) put(all []gateway.Objects) { all[o.kind.index].Put(o.name, o.value) }

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

// noFiles returns an error for an object that names a file: a daemon would read it as root for any node.
func noFiles(value any) error {
	for _, name := range gateway.Files(value) {
		return fmt.Errorf("%q is the name of a file of the host: want the text itself (PEM), or declare the object on each "+
			"host and refer to it as NAME@file", name)
	}
	return nil
}

// checkService checks the servers of a service, whatever its protocol is. Other objects have none.
func checkService(value any) error {
	switch s := value.(type) {
	case *gateway.Service:
		return checkHTTPServers(s.Servers())
	case *gateway.TCPService:
		return checkServers(s.Servers(), func(one gateway.TCPServer) string { return one.Address })
	case *gateway.UDPService:
		return checkServers(s.Servers(), func(one gateway.UDPServer) string { return one.Address })
	}
	return nil
}

func checkHTTPServers(servers []gateway.Server) error {
	for _, one := range servers {
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

package tree

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/model/gateway"
)

// Decode fills the value that into points to from a tree, and returns the keys that it
// could not use. Key is the key of the tree's root, for the mistakes: it may be empty.
//
// A name is that of a field, ignoring case; fields of embedded structs count as the
// struct's own. A pointer to a struct is set by its children or by the value "true"
// alone; "false" leaves it nil, whatever its children are. A list is split at commas
// and trimmed, or has the children [n]; the list of servers may be written as its only
// element, "server". A bare integer as a duration means seconds.
func Decode(n *Node, key string, into any) []Mistake {
	return decode(n, key, into, decoder{})
}

// DecodeDeclared is Decode, and accepts the keys that only fairlead.yaml has, too.
func DecodeDeclared(n *Node, key string, into any) []Mistake {
	return decode(n, key, into, decoder{declared: true})
}

func decode(n *Node, key string, into any, d decoder) []Mistake {
	d.value(n, key, reflect.ValueOf(into).Elem())
	return d.mistakes
}

type decoder struct {
	mistakes []Mistake
	// declared accepts the keys that only fairlead.yaml has.
	declared bool
}

func (d *decoder) mistake(n *Node, key, format string, args ...any) {
	d.mistakes = append(d.mistakes, Mistake{Key: key, Line: n.Line, Text: fmt.Sprintf(format, args...)})
}

func (d *decoder) value(n *Node, key string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		d.pointer(n, key, v)
	case reflect.Struct:
		d.object(n, key, v)
	case reflect.Map:
		d.table(n, key, v)
	case reflect.Slice:
		d.list(n, key, v)
	default:
		if len(n.Children) > 0 {
			child := n.Children[0]
			d.mistake(child, Join(key, child.Name), "%s has one value and no names below it: leave out %q",
				key, child.Name)
			return
		}
		if err := scalar(n.Value(), v); err != nil {
			d.mistake(n, key, "%v", err)
		}
	}
}

func (d *decoder) pointer(n *Node, key string, v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Struct && n.Value() != "" {
		on, err := strconv.ParseBool(n.Value())
		if err != nil {
			d.mistake(n, key, "value %s: want true, false, or names below it: %s", quoted(n, v.Type()), names(v.Type().Elem()))
			return
		}
		if !on {
			v.SetZero()
			return
		}
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	if v.Type().Elem().Kind() == reflect.Struct {
		d.fields(n, key, v.Elem())
		return
	}
	d.value(n, key, v.Elem())
}

func (d *decoder) object(n *Node, key string, v reflect.Value) {
	if n.Value() != "" {
		d.mistake(n, key, "value %s: want names below it: %s", quoted(n, v.Type()), names(v.Type()))
		return
	}
	d.fields(n, key, v)
}

// fields decodes the children of a node into the fields with their names.
func (d *decoder) fields(n *Node, key string, v reflect.Value) {
	seen := map[string]*Node{}
	for _, child := range n.Children {
		at := Join(key, child.Name)
		f, ok := d.field(v.Type(), child.Name)
		one := !ok && strings.EqualFold(child.Name, "server")
		if one {
			f, ok = d.field(v.Type(), "servers")
		}
		switch first := seen[f.Name]; {
		case !ok:
			d.unknown(child, at, v.Type())
		case first != nil:
			d.mistake(child, at, "the key is given twice, as %q and %q: leave one out", first.Name, child.Name)
		case one:
			seen[f.Name] = child
			d.element(child, at, v.FieldByIndex(f.Index))
		default:
			seen[f.Name] = child
			d.value(child, at, v.FieldByIndex(f.Index))
		}
	}
}

// unsupported are the keys of Traefik that have no field, by their names in lower case:
// what to write instead.
var unsupported = map[string]string{
	"parentrefs": "give each router its whole rule and all of its middlewares",
	"spiffe":     "write rootCAs and peerCertURI",
}

// unknown reports a key that no field has. Without the key "errors" of a failover, the
// failover depends on the health of the service only.
func (d *decoder) unknown(n *Node, key string, t reflect.Type) {
	name := strings.ToLower(n.Name)
	instead, known := unsupported[name]
	switch {
	case known:
		d.mistake(n, key, "Traefik's key %q is not supported: %s", n.Name, instead)
	case name == "errors" && t == reflect.TypeFor[gateway.Failover]():
		d.mistake(n, key, "Traefik's key %q is not supported: the fallback is in use only while the service is down",
			n.Name)
		d.mistakes[len(d.mistakes)-1].Warning = true
	default:
		d.mistake(n, key, "%s", Unknown(n.Name, FieldNames(t)))
	}
}

// field returns the field with this name, ignoring case, unless it is no key here.
func (d *decoder) field(t reflect.Type, name string) (reflect.StructField, bool) {
	f, ok := field(t, name)
	where := f.Tag.Get("declared")
	return f, ok && (where == "" || where == "only" && d.declared)
}

// field returns the field with this name, ignoring case.
func field(t reflect.Type, name string) (reflect.StructField, bool) {
	f, ok := t.FieldByNameFunc(func(known string) bool { return strings.EqualFold(known, name) })
	return f, ok && f.IsExported() && !f.Anonymous
}

// table decodes the children of a node into the entries of a map. The names keep their
// case. Entries that are texts have all names below the map's as their name, joined
// with dots.
func (d *decoder) table(n *Node, key string, v reflect.Value) {
	if n.Value() != "" {
		d.mistake(n, key, "value %s: want a name of your choice below it, such as %s.NAME", quoted(n, v.Type()), key)
		return
	}
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for _, child := range n.Children {
		d.entry(child, Join(key, child.Name), child.Name, v)
	}
}

func (d *decoder) entry(n *Node, key, name string, v reflect.Value) {
	if strings.Count(key, ".") > 2*maxDepth {
		d.mistake(n, shortened(key), "names are nested too deep: want at most %d", maxDepth)
		return
	}
	if v.Type().Elem().Kind() == reflect.String && len(n.Children) > 0 {
		for _, child := range n.Children {
			d.entry(child, Join(key, child.Name), Join(name, child.Name), v)
		}
		return
	}
	elem := reflect.New(v.Type().Elem()).Elem()
	d.value(n, key, elem)
	if elem.Kind() != reflect.Pointer || !elem.IsNil() {
		v.SetMapIndex(reflect.ValueOf(name), elem)
	}
}

func (d *decoder) list(n *Node, key string, v reflect.Value) {
	elem := v.Type().Elem()
	v.SetZero()
	if elem.Kind() != reflect.Struct {
		for _, value := range n.Values {
			d.words(n, key, value, v)
		}
	} else if n.Value() != "" {
		d.mistake(n, key, "value %s: want the elements of the list: %s[0].%s", quoted(n, elem), key, FieldNames(elem)[0])
		return
	}
	if len(n.Children) > 0 && !strings.HasPrefix(n.Children[0].Name, "[") {
		d.indexless(n, key, v)
		return
	}
	for _, child := range n.Children {
		d.element(child, Join(key, child.Name), v)
	}
}

// element decodes a node into a new element of a list.
func (d *decoder) element(n *Node, key string, list reflect.Value) {
	e := reflect.New(list.Type().Elem()).Elem()
	d.value(n, key, e)
	list.Set(reflect.Append(list, e))
}

// words appends the elements of a text that is split at commas. An empty text has none.
func (d *decoder) words(n *Node, key, text string, v reflect.Value) {
	if text == "" {
		return
	}
	for word := range strings.SplitSeq(text, ",") {
		e := reflect.New(v.Type().Elem()).Elem()
		if err := scalar(strings.TrimSpace(word), e); err != nil {
			d.mistake(n, key, "%v", err)
			return
		}
		v.Set(reflect.Append(v, e))
	}
}

// indexless decodes a list of structs that is written without "[0]", as in
// tls.domains.main, as a list of one element. Traefik accepts it too, but makes an
// empty element of it.
func (d *decoder) indexless(n *Node, key string, v reflect.Value) {
	child := n.Children[0]
	if v.Type().Elem().Kind() != reflect.Struct {
		d.mistake(child, Join(key, child.Name), "%s is a list: want %s=VALUE,VALUE", key, key)
		return
	}
	before := len(d.mistakes)
	d.element(n, key, v)
	if len(d.mistakes) == before {
		d.mistake(child, Join(key, child.Name), "%s is a list: write %s[0].%s", key, key, child.Name)
		d.mistakes[before].Warning = true
	}
}

// scalar parses a text into a value that has no parts.
func scalar(text string, v reflect.Value) error {
	if v.Type() == reflect.TypeFor[time.Duration]() {
		t, err := duration(text)
		v.SetInt(int64(t))
		return err
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		on, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("value %q: want true or false", text)
		}
		v.SetBool(on)
	case reflect.Int, reflect.Int32, reflect.Int64:
		i, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("value %q: want an integer", text)
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("value %q: want a number", text)
		}
		v.SetFloat(f)
	default:
		panic("tree: cannot decode " + v.Type().String())
	}
	return nil
}

// duration parses a duration as Traefik does: an integer is a number of seconds.
func duration(text string) (time.Duration, error) {
	t, err := time.ParseDuration(text)
	if i, intErr := strconv.ParseInt(text, 10, 32); intErr == nil {
		return time.Duration(i) * time.Second, nil
	}
	if err != nil {
		return 0, fmt.Errorf("value %q: want a duration such as 10s or 500ms; an integer means seconds", text)
	}
	return t, nil
}

// quoted returns the value of a node for a message, without credentials if a value of the type can have some.
func quoted(n *Node, t reflect.Type) string {
	if gateway.HasSecrets(t) {
		return gateway.Hidden
	}
	return strconv.Quote(gateway.ShownURL(n.Value()))
}

// FieldNames returns the names of a struct's fields as users write them, sorted.
func FieldNames(t reflect.Type) (found []string) {
	for _, f := range reflect.VisibleFields(t) {
		if f.IsExported() && !f.Anonymous && f.Tag.Get("declared") == "" {
			found = append(found, strings.ToLower(f.Name))
		}
	}
	slices.Sort(found)
	return found
}

func names(t reflect.Type) string {
	if t.NumField() == 0 {
		return "it has none"
	}
	return strings.Join(FieldNames(t), ", ")
}

package serving

import (
	"reflect"
	"slices"

	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// change makes one configuration of another. With thousands of routers, encoding all of
// them takes longer than to use them, and a change of a container concerns a few.
type change struct {
	// Set has the new and the changed objects. What is no map is the whole new value.
	Set model.Config `json:"set"`
	// Same has the paths of what is no map and has not changed, for example
	// "TLS.Certificates".
	Same []string `json:"same,omitempty"`
	// Gone has the names of objects that do not exist any more, by the path of their map,
	// for example "HTTP.Routers".
	Gone map[string][]string `json:"gone,omitempty"`
	// Whole says that the change begins with nothing.
	Whole bool `json:"whole,omitempty"`
	// Known are the objects whose status the controlling process knows.
	Known []status.Status `json:"known,omitempty"`
}

// changeOf returns the change from one configuration to another. Objects are compared by
// their pointers: a configuration is immutable, so the same pointer is the same object.
func changeOf(from, to *model.Config) change {
	c := change{Gone: map[string][]string{}}
	eachField(reflect.ValueOf(&c.Set).Elem(), "", func(path string, field reflect.Value, index [][]int) {
		had, has := at(from, index), at(to, index)
		if field.Kind() != reflect.Map {
			if same(had, has) {
				c.Same = append(c.Same, path)
			} else {
				field.Set(has)
			}
			return
		}
		for _, key := range has.MapKeys() {
			value := has.MapIndex(key)
			if old := had.MapIndex(key); old.IsValid() && same(old, value) {
				continue
			}
			if field.IsNil() {
				field.Set(reflect.MakeMap(field.Type()))
			}
			field.SetMapIndex(key, value)
		}
		for _, key := range had.MapKeys() {
			if !has.MapIndex(key).IsValid() {
				c.Gone[path] = append(c.Gone[path], key.String())
			}
		}
	})
	return c
}

// apply returns the configuration after the change. It does not alter from.
func (c change) apply(from *model.Config) *model.Config {
	to := new(model.Config)
	eachField(reflect.ValueOf(to).Elem(), "", func(path string, field reflect.Value, index [][]int) {
		set := at(&c.Set, index)
		if field.Kind() != reflect.Map {
			if slices.Contains(c.Same, path) {
				set = at(from, index)
			}
			field.Set(set)
			return
		}
		all := reflect.MakeMap(field.Type())
		for _, part := range []reflect.Value{at(from, index), set} {
			for _, key := range part.MapKeys() {
				all.SetMapIndex(key, part.MapIndex(key))
			}
		}
		for _, name := range c.Gone[path] {
			all.SetMapIndex(reflect.ValueOf(name).Convert(all.Type().Key()), reflect.Value{})
		}
		field.Set(all)
	})
	return to
}

// eachField calls do with each field of the struct and of the structs in it, its path and
// its indices.
func eachField(v reflect.Value, path string, do func(path string, field reflect.Value, index [][]int)) {
	var walk func(v reflect.Value, path string, index [][]int)
	walk = func(v reflect.Value, path string, index [][]int) {
		for i := range v.NumField() {
			field, name := v.Field(i), path+v.Type().Field(i).Name
			here := append(slices.Clone(index), []int{i})
			if field.Kind() == reflect.Struct {
				walk(field, name+".", here)
				continue
			}
			do(name, field, here)
		}
	}
	walk(v, path, nil)
}

// at returns a field of the configuration.
func at(config *model.Config, index [][]int) reflect.Value {
	v := reflect.ValueOf(config).Elem()
	for _, i := range index {
		v = v.FieldByIndex(i)
	}
	return v
}

// same reports whether two objects are the same.
func same(a, b reflect.Value) bool {
	if a.Kind() == reflect.Pointer {
		return a.Pointer() == b.Pointer()
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

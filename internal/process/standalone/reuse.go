package standalone

import (
	"reflect"

	values "fairlead/internal/model/gateway"
)

// Reuse replaces the objects of a configuration by those of an earlier one that are equal:
// the same pointer shows the serving process's controller that an object has not changed.
func Reuse(next, before *values.Config) {
	had := before.Objects()
	for i, all := range next.Objects() {
		for name, value := range all.All() {
			if old := had[i].Get(name); old != nil && reflect.DeepEqual(old, value) {
				all.Put(name, old)
			}
		}
	}
}

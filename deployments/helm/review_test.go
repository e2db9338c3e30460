// Copyright The memslice Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package chart_test

import (
	"testing"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

// policy evaluates a ValidatingAdmissionPolicy with the API server's own
// compiler.
type policy struct {
	conditions, validations, messages admissioncel.ConditionEvaluator
	context                           func() admissioncel.CompositionContext
}

func compile(t *testing.T, p *admissionregistrationv1.ValidatingAdmissionPolicy) policy {
	t.Helper()
	if *p.Spec.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("The policy lets pass what it cannot judge: failurePolicy %s", *p.Spec.FailurePolicy)
	}
	compiler, err := admissioncel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	options := admissioncel.OptionalVariableDeclarations{}
	for _, v := range p.Spec.Variables {
		result := compiler.CompileAndStoreVariable(expression{name: v.Name, text: v.Expression, returns: cel.AnyType}, options, environment.NewExpressions)
		if result.Error != nil {
			t.Fatalf("Variable %s: %v", v.Name, result.Error)
		}
	}
	var conditions, validations, messages []admissioncel.ExpressionAccessor
	for _, c := range p.Spec.MatchConditions {
		conditions = append(conditions, expression{name: c.Name, text: c.Expression, returns: cel.BoolType})
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, expression{text: v.Expression, returns: cel.BoolType})
		messages = append(messages, expression{text: v.MessageExpression, returns: cel.StringType})
	}
	compiled := policy{
		conditions:  compiler.CompileCondition(conditions, options, environment.NewExpressions),
		validations: compiler.CompileCondition(validations, options, environment.NewExpressions),
		messages:    compiler.CompileCondition(messages, options, environment.NewExpressions),
		context:     func() admissioncel.CompositionContext { return compiler.CreateContext(t.Context()) },
	}
	for _, e := range []admissioncel.ConditionEvaluator{compiled.conditions, compiled.validations, compiled.messages} {
		for _, err := range e.CompilationErrors() {
			t.Fatal(err)
		}
	}
	return compiled
}

// review returns the message with which the policy denies a write, or nothing.
// Without an old slice it is a CREATE, without a new one a DELETE.
func (p policy) review(t *testing.T, who user.Info, updated, old *resourceapi.ResourceSlice) string {
	t.Helper()
	operation, options := admission.Update, runtime.Object(&metav1.UpdateOptions{})
	var newObject, oldObject runtime.Object
	if updated == nil {
		operation, options = admission.Delete, &metav1.DeleteOptions{}
	} else {
		newObject = updated
	}
	if old == nil {
		operation, options = admission.Create, &metav1.CreateOptions{}
	} else {
		oldObject = old
	}
	kind := resourceapi.SchemeGroupVersion.WithKind("ResourceSlice")
	resource := resourceapi.SchemeGroupVersion.WithResource("resourceslices")
	attributes := admission.NewAttributesRecord(newObject, oldObject, kind, "", "", resource, "", operation, options, false, who)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedObject: admission.NewLazyObject(newObject), VersionedOldObject: admission.NewLazyObject(oldObject), VersionedKind: kind}
	request := admissioncel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))

	evaluate := func(e admissioncel.ConditionEvaluator) []admissioncel.EvaluationResult {
		results, _, err := e.ForInput(p.context(), versioned, request, admissioncel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	for _, condition := range evaluate(p.conditions) {
		if condition.Error != nil {
			t.Fatal(condition.Error)
		}
		if condition.EvalResult.Value() != true {
			return ""
		}
	}
	for n, validation := range evaluate(p.validations) {
		if validation.Error != nil {
			t.Fatalf("Validation %d: %v", n, validation.Error)
		}
		if validation.EvalResult.Value() == true {
			continue
		}
		message := evaluate(p.messages)[n]
		if message.Error != nil {
			t.Fatalf("Message of validation %d: %v", n, message.Error)
		}
		return message.EvalResult.Value().(string)
	}
	return ""
}

// expression is what the compiler wants to know about a piece of CEL.
type expression struct {
	name, text string
	returns    *cel.Type
}

func (e expression) GetName() string          { return e.name }
func (e expression) GetExpression() string    { return e.text }
func (e expression) ReturnTypes() []*cel.Type { return []*cel.Type{e.returns} }

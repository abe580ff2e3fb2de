//! What the derive writes.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{
    Data, DeriveInput, Error, Field, Fields, GenericParam, Generics, Result, Type, WherePredicate,
    parse_quote,
};

use crate::mode;

/// Most entries that one tuple describes.
const TUPLE: usize = 12;

/// A struct over a mode.
struct Named<'i> {
    name: &'i Ident,
    generics: &'i Generics,
    parameter: &'i Ident,
    fields: Vec<&'i Field>,
}

pub(crate) fn describe(input: &DeriveInput) -> Result<TokenStream> {
    let named = Named::parse(input)?;
    let leaf = Ident::new("__Leaf", Span::mixed_site());
    let spec: Type = parse_quote!(::space_core::Spec);
    let partial: Type = parse_quote!(::space_core::Partial<#leaf>);
    let description = named.describe(&spec, &leaf);
    let partly_given = named.describe(&partial, &leaf);
    let conversion = named.to_partial(&spec, &partial, &leaf);
    Ok(quote! { #description #partly_given #conversion })
}

impl<'i> Named<'i> {
    fn parse(input: &'i DeriveInput) -> Result<Self> {
        let Data::Struct(data) = &input.data else {
            let why = "`Describe` is derived for structs: an enum or a union has no set of entries";
            return Err(Error::new_spanned(&input.ident, why));
        };
        let Fields::Named(fields) = &data.fields else {
            let why = "`Describe` is derived for structs with named fields; a tuple describes \
                       itself";
            return Err(Error::new_spanned(&input.ident, why));
        };
        let Some(parameter) = mode::parameter(&input.generics) else {
            let why = "`Describe` wants a type parameter bounded by `Mode`, from which the entries \
                       take their types: `struct Layer<M: Mode> { y: M::Of<f32, [usize; 2]> }`";
            return Err(Error::new_spanned(&input.ident, why));
        };
        Ok(Self {
            name: &input.ident,
            generics: &input.generics,
            parameter: &parameter.ident,
            fields: fields.named.iter().collect(),
        })
    }

    /// The struct's type in a mode.
    fn of(&self, mode: &Type) -> TokenStream {
        let name = self.name;
        let arguments = self
            .generics
            .params
            .iter()
            .map(|parameter| match parameter {
                GenericParam::Type(it) if it.ident == *self.parameter => mode.to_token_stream(),
                GenericParam::Type(it) => it.ident.to_token_stream(),
                GenericParam::Lifetime(it) => it.lifetime.to_token_stream(),
                GenericParam::Const(it) => it.ident.to_token_stream(),
            });
        quote!(#name<#(#arguments),*>)
    }

    /// The struct's parameters other than the mode, and the leaf's block; with the struct's own
    /// conditions in the given mode.
    fn generics(&self, mode: &Type, leaf: &Ident) -> Generics {
        let mut generics = self.generics.clone();
        let others = generics
            .params
            .into_iter()
            .filter(|parameter| match parameter {
                GenericParam::Type(it) => it.ident != *self.parameter,
                _ => true,
            });
        generics.params = others
            .map(|parameter| match parameter {
                GenericParam::Type(mut it) => {
                    it.default = None;
                    GenericParam::Type(it)
                }
                GenericParam::Const(mut it) => {
                    it.default = None;
                    GenericParam::Const(it)
                }
                other => other,
            })
            .collect();
        generics
            .params
            .push(parse_quote!(#leaf: ::space_core::Block));
        if let Some(clause) = &mut generics.where_clause {
            // That the mode is a mode is known, and saying it again would hide what it is.
            let others = std::mem::take(&mut clause.predicates).into_iter();
            clause.predicates = others
                .filter_map(|predicate| match predicate {
                    WherePredicate::Type(it) if mode::is(&it.bounded_ty, self.parameter) => None,
                    WherePredicate::Type(mut it) => {
                        it.bounded_ty = mode::replace(&it.bounded_ty, self.parameter, mode);
                        Some(WherePredicate::Type(it))
                    }
                    other => Some(other),
                })
                .collect();
        }
        generics
    }

    fn is_entry(&self, field: &Field) -> bool {
        mode::mentions(&field.ty, self.parameter)
    }

    /// `impl Describe` in a mode.
    fn describe(&self, mode: &Type, leaf: &Ident) -> TokenStream {
        let this = self.of(mode);
        let out = self.of(&parse_quote!(::space_core::In<#leaf>));
        let generics = self.generics(mode, leaf);
        let (parameters, _, conditions) = generics.split_for_impl();

        let names: Vec<_> = self.fields.iter().map(|field| &field.ident).collect();
        let bindings: Vec<_> = (0..names.len()).map(|i| format_ident!("__{i}")).collect();
        let types = self.fields.iter().map(|field| {
            let ty = mode::replace(&field.ty, self.parameter, mode);
            if self.is_entry(field) {
                quote!(#ty)
            } else {
                quote!(::space_core::Given<#ty>)
            }
        });
        let values = self.fields.iter().zip(&bindings).map(|(field, binding)| {
            if self.is_entry(field) {
                quote!(#binding)
            } else {
                quote!(::space_core::Given(#binding))
            }
        });
        let parts = nest(types.collect());
        let values = nest(values.collect());
        let pattern = nest(bindings.iter().map(ToTokens::to_token_stream).collect());

        quote! {
            #[automatically_derived]
            impl #parameters ::space_core::Describe<#leaf> for #this #conditions {
                type Out = #out;
                type Flat = <#parts as ::space_core::Describe<#leaf>>::Flat;
                type Held = <#parts as ::space_core::Describe<#leaf>>::Held;

                #[inline(always)]
                fn flatten(self) -> (Self::Flat, Self::Held) {
                    let Self { #(#names: #bindings),* } = self;
                    <#parts as ::space_core::Describe<#leaf>>::flatten(#values)
                }

                #[inline(always)]
                fn finish(
                    arrays: ::space_core::Carved<Self, #leaf>,
                    held: Self::Held,
                ) -> Self::Out {
                    let #pattern =
                        <#parts as ::space_core::Describe<#leaf>>::finish(arrays, held);
                    Self::Out { #(#names: #bindings),* }
                }
            }
        }
    }

    /// `impl ToPartial` and `impl From`.
    fn to_partial(&self, spec: &Type, partial: &Type, leaf: &Ident) -> TokenStream {
        let (this, other) = (self.of(spec), self.of(partial));
        let generics = self.generics(spec, leaf);
        let (parameters, _, conditions) = generics.split_for_impl();
        let names: Vec<_> = self.fields.iter().map(|field| &field.ident).collect();
        let values = self.fields.iter().map(|field| {
            let name = &field.ident;
            if self.is_entry(field) {
                quote!(::space_core::ToPartial::<#leaf>::to_partial(self.#name))
            } else {
                quote!(self.#name)
            }
        });
        quote! {
            #[automatically_derived]
            impl #parameters ::space_core::ToPartial<#leaf> for #this #conditions {
                type Partial = #other;

                fn to_partial(self) -> Self::Partial {
                    Self::Partial { #(#names: #values),* }
                }
            }

            #[automatically_derived]
            impl #parameters ::core::convert::From<#this> for #other #conditions {
                fn from(description: #this) -> Self {
                    ::space_core::ToPartial::<#leaf>::to_partial(description)
                }
            }
        }
    }
}

/// A tuple of the items; of tuples, if there are more than one describes.
fn nest(mut items: Vec<TokenStream>) -> TokenStream {
    while items.len() > TUPLE {
        let chunks = items.chunks(TUPLE);
        items = chunks.map(|chunk| quote!((#(#chunk,)*))).collect();
    }
    if items.is_empty() {
        return quote!(());
    }
    quote!((#(#items,)*))
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenTree;

    use super::*;

    fn words(tokens: TokenStream) -> Vec<String> {
        let words = tokens.into_iter().flat_map(|token| match token {
            TokenTree::Group(group) => words(group.stream()),
            other => vec![other.to_string()],
        });
        words.collect()
    }

    #[test]
    fn the_derive_writes_no_unsafe() {
        let input = syn::parse_quote! {
            struct Layer<'a, M: Mode, T: Element, const N: usize> {
                y: M::Of<T, [usize; 2]>,
                mask: Option<M::Of<u8, Vec<usize>>>,
                pair: [M::Of<u16, [usize; 1]>; N],
                inner: Inner<M>,
                label: &'a str,
            }
        };
        let words = words(describe(&input).unwrap());
        assert!(words.iter().any(|word| word == "Describe"));
        assert!(!words.iter().any(|word| word == "unsafe"));
    }
}

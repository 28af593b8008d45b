//! The derive macro of `farcore_pool::Plain`.
//!
//! A struct is stored field by field, at the offsets of `#[repr(C)]`; padding is stored as zeros.
//! An enum without fields is stored as its discriminant, whose type its `repr` names.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, Fields, Ident, Index, parse_macro_input};

/// Derives `Plain`.
#[proc_macro_derive(Plain)]
pub fn plain(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let derived = match &input.data {
        Data::Struct(data) => Ok(of_struct(&input, &data.fields)),
        Data::Enum(data) => of_enum(&input, data),
        Data::Union(_) => Err(Error::new(
            input.ident.span(),
            "a union has no fields that are known to be valid: use a struct or an enum",
        )),
    };
    derived.unwrap_or_else(Error::into_compile_error).into()
}

fn of_struct(input: &DeriveInput, fields: &Fields) -> TokenStream {
    let name = &input.ident;
    let text = name.to_string();
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter
            .bounds
            .push(syn::parse_quote!(::farcore_pool::Plain));
    }
    let (of, arguments, conditions) = generics.split_for_impl();
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let names: Vec<_> = fields
        .iter()
        .enumerate()
        .map(|(place, field)| match &field.ident {
            Some(name) => name.to_token_stream(),
            None => Index::from(place).to_token_stream(),
        })
        .collect();
    let labels: Vec<_> = names.iter().map(ToString::to_string).collect();
    quote! {
        impl #of ::farcore_pool::Plain for #name #arguments #conditions {
            const ALIGN: usize = {
                let mut align = 1;
                #(if <#types as ::farcore_pool::Plain>::ALIGN > align {
                    align = <#types as ::farcore_pool::Plain>::ALIGN;
                })*
                align
            };
            const BYTES: usize = {
                let mut at = 0usize;
                #(at = at.next_multiple_of(<#types as ::farcore_pool::Plain>::ALIGN)
                    + <#types as ::farcore_pool::Plain>::BYTES;)*
                at.next_multiple_of(Self::ALIGN)
            };
            const MARK: u64 = ::farcore_pool::plain::mark(
                #text,
                &[#(::farcore_pool::plain::mark(
                    #labels,
                    &[<#types as ::farcore_pool::Plain>::MARK],
                )),*],
            );

            fn store(&self, to: &mut [u8]) {
                to.fill(0);
                let mut at = 0usize;
                #(
                    at = at.next_multiple_of(<#types as ::farcore_pool::Plain>::ALIGN);
                    let end = at + <#types as ::farcore_pool::Plain>::BYTES;
                    ::farcore_pool::Plain::store(&self.#names, &mut to[at..end]);
                    at = end;
                )*
                let _ = at;
            }

            fn load(
                from: &[u8],
            ) -> ::core::result::Result<Self, ::farcore_pool::plain::PlainError> {
                let mut at = 0usize;
                let loaded = Self {
                    #(#names: {
                        at = at.next_multiple_of(<#types as ::farcore_pool::Plain>::ALIGN);
                        let end = at + <#types as ::farcore_pool::Plain>::BYTES;
                        let part = &from[at..end];
                        at = end;
                        <#types as ::farcore_pool::Plain>::load(part)?
                    },)*
                };
                let _ = at;
                ::core::result::Result::Ok(loaded)
            }
        }
    }
}

/// The integer type that an enum's `repr` names.
fn discriminant_type(input: &DeriveInput) -> Option<Ident> {
    let mut found = None;
    for attribute in input.attrs.iter().filter(|one| one.path().is_ident("repr")) {
        let _ = attribute.parse_nested_meta(|meta| {
            let name = meta.path.get_ident().map(ToString::to_string);
            if let Some(name) = name
                && ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"].contains(&&*name)
            {
                found = meta.path.get_ident().cloned();
            }
            Ok(())
        });
    }
    found
}

fn of_enum(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream, Error> {
    let name = &input.ident;
    let text = name.to_string();
    let Some(number) = discriminant_type(input) else {
        return Err(Error::new(
            name.span(),
            "name the type of the discriminant, for example `#[repr(u8)]`",
        ));
    };
    if let Some(variant) = data.variants.iter().find(|one| !one.fields.is_empty()) {
        return Err(Error::new(
            variant.span(),
            "a variant with fields has no fixed layout: use a struct with a tag",
        ));
    }
    let variants: Vec<_> = data.variants.iter().map(|one| &one.ident).collect();
    let labels: Vec<_> = variants.iter().map(ToString::to_string).collect();
    Ok(quote! {
        impl ::farcore_pool::Plain for #name {
            const ALIGN: usize = <#number as ::farcore_pool::Plain>::ALIGN;
            const BYTES: usize = <#number as ::farcore_pool::Plain>::BYTES;
            const MARK: u64 = ::farcore_pool::plain::mark(
                #text,
                &[
                    <#number as ::farcore_pool::Plain>::MARK,
                    #(::farcore_pool::plain::mark(#labels, &[Self::#variants as u64])),*
                ],
            );

            fn store(&self, to: &mut [u8]) {
                <#number as ::farcore_pool::Plain>::store(&(*self as #number), to);
            }

            fn load(
                from: &[u8],
            ) -> ::core::result::Result<Self, ::farcore_pool::plain::PlainError> {
                let number = <#number as ::farcore_pool::Plain>::load(from)?;
                #(if number == Self::#variants as #number {
                    return ::core::result::Result::Ok(Self::#variants);
                })*
                ::core::result::Result::Err(::farcore_pool::plain::PlainError {
                    name: #text,
                    found: number as u64,
                })
            }
        }
    })
}
